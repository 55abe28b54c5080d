//! In which order the dynamic loader looks for a symbol: the executable, preloaded libraries, the others.
//!
//! Read from the loader's own list in the process's memory (`struct r_debug` of link.h, to which `DT_DEBUG` of the executable leads); the
//! first file in it that defines `malloc` serves all of them. Nothing there is believed: it only chooses among files that are mapped.

use super::mappings::{Backing, Mapping};
use object::LittleEndian as LE;
use object::elf::{self, Dyn64, ProgramHeader64};
use object::pod::{self, Pod};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Most files that are looked at.
const MOST_FILES: usize = 4096;
/// Most program headers and dynamic entries that are looked at.
const MOST_ENTRIES: u64 = 512;
/// Keys of the auxiliary vector.
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;

/// Paths of the files in which symbols are looked for, in order; empty where that is not known (a static program, one that just
/// starts, one that is gone).
pub(super) fn read(pid: u32, mappings: &[Mapping]) -> Vec<String> {
    let Some(list) = dynamic_sections(pid) else { return Vec::new() };
    let path = |address: &u64| {
        let at = mappings.iter().find(|of| (of.start..of.end).contains(address))?;
        match &at.backing {
            Backing::File(path) => Some(path.clone()),
            _ => None,
        }
    };
    list.iter().filter_map(path).collect()
}

/// Addresses of the dynamic sections of all loaded files.
fn dynamic_sections(pid: u32) -> Option<Vec<u64>> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let auxiliary = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let value = |key: u64| {
        let mut pairs = auxiliary.chunks_exact(16).map(|pair| (word(pair, 0), word(pair, 8)));
        pairs.find(|(of, _)| *of == Some(key))?.1
    };
    let headers = value(AT_PHDR)?;
    let count = value(AT_PHNUM)?.min(MOST_ENTRIES);
    let programs: Vec<ProgramHeader64<LE>> = read_list(&memory, headers, count)?;
    let of = |kind: u32| programs.iter().find(move |program| program.p_type.get(LE) == kind);
    let slide = of(elf::PT_PHDR).map_or(0, |own| headers.wrapping_sub(own.p_vaddr.get(LE)));
    let dynamic = of(elf::PT_DYNAMIC)?;
    let entries = (dynamic.p_memsz.get(LE) / size_of::<Dyn64<LE>>() as u64).min(MOST_ENTRIES);
    let address = dynamic.p_vaddr.get(LE).wrapping_add(slide);
    let entries: Vec<Dyn64<LE>> = read_list(&memory, address, entries)?;
    let debug = entries.iter().find(|entry| entry.d_tag.get(LE) == elf::DT_DEBUG)?;
    // struct r_debug { int r_version; struct link_map *r_map; … }
    let mut next = read_word(&memory, debug.d_val.get(LE).wrapping_add(8))?;
    let mut list = Vec::new();
    while next != 0 && list.len() < MOST_FILES {
        // struct link_map { l_addr, l_name, l_ld, l_next, l_prev }
        let mut entry = [0; 40];
        memory.read_exact_at(&mut entry, next).ok()?;
        list.push(word(&entry, 16)?);
        next = word(&entry, 24)?;
    }
    Some(list)
}

fn read_list<T: Pod>(memory: &File, address: u64, count: u64) -> Option<Vec<T>> {
    let mut bytes = vec![0; count as usize * size_of::<T>()];
    memory.read_exact_at(&mut bytes, address).ok()?;
    let (list, _) = pod::slice_from_bytes::<T>(&bytes, count as usize).ok()?;
    Some(list.to_vec())
}

fn read_word(memory: &File, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use crate::target::mappings;

    #[test]
    fn the_executable_is_first_and_libc_is_there() {
        let pid = std::process::id();
        let mappings = mappings::read(pid).unwrap();
        let order = super::read(pid, &mappings);
        let own = std::env::current_exe().unwrap();
        assert_eq!(order.first().map(String::as_str), own.to_str(), "{order:?}");
        assert!(order.iter().any(|path| path.ends_with("libc.so.6")), "{order:?}");
        assert!(super::read(u32::MAX, &mappings).is_empty());
    }
}
