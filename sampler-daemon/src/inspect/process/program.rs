//! The program that a process runs, as it is in memory, by its program headers. The auxiliary
//! vector gives the address of the headers (getauxval(3)). This works even if nobody else can open
//! the program's file.
//!
//! The memory is the target's, so nothing in it is trusted and every read is bounded.

use crate::inspect::elf::notes;
use object::LittleEndian as LE;
use object::elf::{self, ProgramHeader32, ProgramHeader64};
use object::pod;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::FileExt;

/// Most bytes of a table in the target's memory.
const MAX_TABLE_BYTES: u64 = 1 << 16;

/// `AT_PHDR`, `AT_PHENT` and `AT_PHNUM` of the auxiliary vector.
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;

/// A 64-bit program.
pub(in crate::inspect) struct Program {
    memory: File,
    headers: Vec<ProgramHeader64<LE>>,
    /// Difference between an address in memory and the address in the file.
    base: u64,
}

impl Program {
    /// The program of process `pid`.
    ///
    /// # Errors
    /// If the memory of the process cannot be read.
    pub(in crate::inspect) fn of(pid: u32) -> io::Result<Program> {
        let vector = vector(pid)?;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let mut program = Program { memory, headers: Vec::new(), base: 0 };
        let (Some(at), Some(count)) = (value(&vector, AT_PHDR), value(&vector, AT_PHNUM)) else {
            return Ok(program);
        };
        program.headers = program.table(at, count)?;
        let own = program.header(elf::PT_PHDR).map_or(0, |own| own.p_vaddr.get(LE));
        program.base = if own == 0 { 0 } else { at.wrapping_sub(own) };
        Ok(program)
    }

    /// The first program header of a kind.
    pub(in crate::inspect) fn header(&self, kind: u32) -> Option<&ProgramHeader64<LE>> {
        self.headers.iter().find(|header| header.p_type.get(LE) == kind)
    }

    /// Address of a segment in memory.
    pub(in crate::inspect) fn address(&self, header: &ProgramHeader64<LE>) -> u64 {
        self.base.wrapping_add(header.p_vaddr.get(LE))
    }

    /// Whether Go's linker made the program.
    pub(in crate::inspect) fn is_go(&self) -> bool {
        let notes = self.headers.iter().filter(|header| header.p_type.get(LE) == elf::PT_NOTE);
        let is_go = |header: &ProgramHeader64<LE>| {
            let bytes = self.bytes(self.address(header), header.p_memsz.get(LE));
            bytes.is_ok_and(|bytes| notes::is_go(&bytes, header.p_align.get(LE)))
        };
        notes.into_iter().any(is_go)
    }

    /// A word of the program's memory.
    pub(in crate::inspect) fn word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address)?;
        Ok(u64::from_le_bytes(word))
    }

    /// `count` structures in the program's memory, or as many as [`MAX_TABLE_BYTES`] hold.
    pub(in crate::inspect) fn table<T: pod::Pod>(
        &self,
        address: u64,
        count: u64,
    ) -> io::Result<Vec<T>> {
        let bytes = self.bytes(address, count.saturating_mul(size_of::<T>() as u64))?;
        let count = bytes.len() / size_of::<T>();
        Ok(pod::slice_from_bytes::<T>(&bytes, count).map(|(of, _)| of.to_vec()).unwrap_or_default())
    }

    fn bytes(&self, address: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size.min(MAX_TABLE_BYTES) as usize];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }
}

/// Whether process `pid` runs a 32-bit program.
///
/// # Errors
/// If neither its executable nor its auxiliary vector can be read, or the process has no memory any
/// more.
pub(in crate::inspect) fn is_32_bit(pid: u32) -> io::Result<bool> {
    let mut executable = match File::open(format!("/proc/{pid}/exe")) {
        Ok(executable) => executable,
        // Only the file's user may be able to open it, as on FUSE mounts.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Ok(has_words_of_32_bits(&vector(pid)?));
        }
        Err(error) => return Err(error),
    };
    let mut identification = [0; 5];
    executable.read_exact(&mut identification)?;
    Ok(identification.starts_with(b"\x7fELF") && identification[4] == elf::ELFCLASS32)
}

/// Whether an auxiliary vector is of a 32-bit program: its program headers have another size.
/// (While a program begins, the vector is empty.)
fn has_words_of_32_bits(vector: &[u8]) -> bool {
    let entry = [AT_PHENT as u32, size_of::<ProgramHeader32<LE>>() as u32];
    let pairs = vector.as_chunks::<8>().0.iter();
    pairs.map(|pair| [&pair[..4], &pair[4..]].map(half)).any(|pair| pair == entry)
}

fn half(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn vector(pid: u32) -> io::Result<Vec<u8>> {
    let vector = fs::read(format!("/proc/{pid}/auxv"))?;
    if vector.is_empty() { Err(Error::from(ErrorKind::NotFound)) } else { Ok(vector) }
}

/// The value of a tag, in a vector of pairs of words.
fn value(vector: &[u8], tag: u64) -> Option<u64> {
    let mut pairs = vector.as_chunks::<16>().0.iter().map(|pair| {
        let (tag, value) = pair.split_at(8);
        [tag, value].map(word)
    });
    pairs.find(|[of, _]| *of == tag).map(|[_, value]| value)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_program_has_its_headers() {
        let pid = std::process::id();
        assert!(!is_32_bit(pid).unwrap());
        let program = Program::of(pid).unwrap();
        let dynamic = program.header(elf::PT_DYNAMIC).unwrap();
        assert_ne!(program.word(program.address(dynamic)).unwrap(), 0);
        assert!(!program.is_go());
    }

    #[test]
    fn words_of_32_bits_are_not_read_as_64() {
        let narrow: Vec<u8> = [3u32, 0x0804_8034, 4, 32, 5, 9, 0, 0].map(u32::to_le_bytes).concat();
        assert_eq!(value(&narrow, AT_PHENT), None);
        assert!(has_words_of_32_bits(&narrow) && !has_words_of_32_bits(&[]));
        let wide: Vec<u8> = [3u64, 0x40_0040, 4, 56, 0, 0].map(u64::to_le_bytes).concat();
        assert_eq!(value(&wide, AT_PHENT), Some(56));
        assert_eq!(value(&wide[..31], AT_PHENT), None);
        assert!(!has_words_of_32_bits(&wide));
    }
}
