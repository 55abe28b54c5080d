//! Strings among a file's constants.

use super::{Elf, ElfError};
use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64};

/// Most bytes of constants that are read of a file, some milliseconds.
const CONSTANT_BYTES: u64 = 16 << 20;
/// Bytes per read.
const CHUNK_BYTES: u64 = 256 << 10;
/// Longest text that can be searched for, in bytes.
const BEGINNING_BYTES: u64 = 64;

/// Whether a section holds constants.
fn is_constant(section: &&SectionHeader64<LE>) -> bool {
    const REQUIRED_FLAGS: u64 = (elf::SHF_ALLOC | elf::SHF_WRITE | elf::SHF_EXECINSTR) as u64;
    section.sh_type.get(LE) == elf::SHT_PROGBITS
        && section.sh_flags.get(LE) & REQUIRED_FLAGS == u64::from(elf::SHF_ALLOC)
}

impl Elf<'_> {
    /// For each text, whether a string among the first [`CONSTANT_BYTES`] of constants begins with
    /// it.
    ///
    /// # Errors
    /// If the file contradicts itself or cannot be read.
    pub(in crate::inspect) fn strings_begin(&self, texts: &[&str]) -> Result<Vec<bool>, ElfError> {
        let mut found = vec![false; texts.len()];
        let mut left = CONSTANT_BYTES;
        for section in self.sections.iter().filter(is_constant) {
            let offset = section.sh_offset.get(LE);
            let size = left.min(section.sh_size.get(LE));
            left -= size;
            let mut at = 0;
            while at < size {
                // Each chunk begins before the end of the previous one, so that it holds strings at
                // that end as a whole.
                let start = at.saturating_sub(BEGINNING_BYTES);
                let bytes = (CHUNK_BYTES + at - start).min(size - start);
                let chunk =
                    self.bytes(offset.saturating_add(start), bytes, u64::MAX, "constants")?;
                for string in chunk.split(|byte| *byte == 0).filter(|string| !string.is_empty()) {
                    for (text, found) in texts.iter().zip(&mut found) {
                        *found |= string.starts_with(text.as_bytes());
                    }
                }
                at = start + bytes;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn strings_of_this_program_are_found() {
        let file = File::open("/bin/sh").unwrap();
        let elf = Elf::read(&file).unwrap();
        let found = elf.strings_begin(&["/dev/null", "no string begins so"]).unwrap();
        assert_eq!(found, [true, false]);
    }
}
