//! Which file's `malloc` a process uses: the first definition in link order.
//!
//! The loader keeps its list of files in that order: the program, what `LD_PRELOAD` names, then what they need, breadth
//! first (`struct r_debug` and `struct link_map` of link.h; glibc's and musl's are alike in what is read here). The list is
//! the target's memory, so its length is bounded and nothing in it is believed beyond that.

use super::mappings::{Backing, Mapping};
use object::LittleEndian as LE;
use object::elf::{self, Dyn64, ProgramHeader64};
use object::pod;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Most files in the list that are looked at.
const MAX_FILES: usize = 4096;
/// Most bytes of a table in the target's memory.
const MAX_TABLE_BYTES: u64 = 1 << 16;

/// `AT_PHDR` and `AT_PHNUM` of the auxiliary vector.
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;

/// Paths of the files of process `pid` in link order; empty for a static program, and before its loader has run.
///
/// # Errors
/// If the process' memory cannot be read.
pub(super) fn link_order(pid: u32, mappings: &[Mapping]) -> io::Result<Vec<String>> {
    let memory = Memory(File::open(format!("/proc/{pid}/mem"))?);
    let Some(mut map) = memory.link_map(pid)? else { return Ok(Vec::new()) };
    let mut order = Vec::new();
    for _ in 0..MAX_FILES {
        // struct link_map { l_addr; l_name; l_ld; l_next; … }
        let [dynamic, next] = [memory.word(map + 16)?, memory.word(map + 24)?];
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&dynamic);
        if let Some(Mapping { backing: Backing::File(path), .. }) = mappings.iter().find(holds) {
            order.push(path.clone());
        }
        if next == 0 {
            break;
        }
        map = next;
    }
    Ok(order)
}

/// Memory of a process.
struct Memory(File);

impl Memory {
    fn bytes(&self, address: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size.min(MAX_TABLE_BYTES) as usize];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    fn word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, address)?;
        Ok(u64::from_le_bytes(word))
    }

    fn table<T: pod::Pod>(&self, address: u64, count: u64) -> io::Result<Vec<T>> {
        let bytes = self.bytes(address, count.saturating_mul(size_of::<T>() as u64))?;
        let count = bytes.len() / size_of::<T>();
        Ok(pod::slice_from_bytes::<T>(&bytes, count).map(|(of, _)| of.to_vec()).unwrap_or_default())
    }

    /// Address of the first `struct link_map`.
    fn link_map(&self, pid: u32) -> io::Result<Option<u64>> {
        let vector = fs::read(format!("/proc/{pid}/auxv"))?;
        let words: Vec<u64> = vector.chunks_exact(8).map(word).collect();
        let value = |tag| words.chunks_exact(2).find(|pair| pair[0] == tag).map(|pair| pair[1]);
        let (Some(headers), Some(count)) = (value(AT_PHDR), value(AT_PHNUM)) else {
            return Ok(None);
        };
        let headers_at = headers;
        let headers: Vec<ProgramHeader64<LE>> = self.table(headers, count)?;
        let of = |kind| headers.iter().find(|header| header.p_type.get(LE) == kind);
        let (Some(dynamic), Some(_)) = (of(elf::PT_DYNAMIC), of(elf::PT_INTERP)) else {
            return Ok(None);
        };
        let own = of(elf::PT_PHDR).map_or(0, |own| own.p_vaddr.get(LE));
        let base = if own == 0 { 0 } else { headers_at.wrapping_sub(own) };
        let address = base.wrapping_add(dynamic.p_vaddr.get(LE));
        let count = dynamic.p_memsz.get(LE) / size_of::<Dyn64<LE>>() as u64;
        let entries: Vec<Dyn64<LE>> = self.table(address, count)?;
        let debug = entries.iter().find(|entry| entry.d_tag.get(LE) == elf::DT_DEBUG);
        match debug.map(|entry| entry.d_val.get(LE)).filter(|debug| *debug != 0) {
            // struct r_debug { r_version; r_map; … }
            Some(debug) => Ok(Some(self.word(debug + 8)?).filter(|map| *map != 0)),
            None => Ok(None),
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::mappings;
    use super::*;

    #[test]
    fn our_own_files_are_in_order() {
        let pid = std::process::id();
        let order = link_order(pid, &mappings::read(pid).unwrap()).unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(order.first().map(String::as_str), program.to_str(), "{order:?}");
        let libc = order.iter().position(|path| path.contains("libc.so.6"));
        assert!(libc.is_some_and(|at| at > 0), "{order:?}");
    }
}
