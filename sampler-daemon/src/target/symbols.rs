//! Finds a few functions by name in a symbol table of any size, without loading it.
//!
//! Browsers and other static giants carry symbol tables of hundreds of megabytes. So both halves
//! are streamed in one pass each: first the string table, for every place where a wanted name
//! stands (linkers store `malloc` as the tail of `xmalloc`, so that may be several), then the
//! symbols, for those that point to such a place. Reference: elf(5).

use super::elf::ElfError;
use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64, Sym64};
use object::pod;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes read at once; a multiple of the size of a symbol.
const CHUNK_BYTES: u64 = 64 * SYMBOL_BYTES * 128;
const SYMBOL_BYTES: u64 = size_of::<Sym64<LE>>() as u64;
/// Largest half of a symbol table that is searched, in bytes (about a second of reading).
const SEARCHED_BYTES: u64 = 1 << 30;
/// Most symbols that one search returns; a file that has more is nonsense.
const FOUND: usize = 1024;
/// Bit of a version index: an old version, that new programs cannot bind to.
const VERSION_HIDDEN: u16 = 0x8000;

/// A defined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, without a version.
    pub name: &'static str,
    /// Whether new programs bind to it: false for the old versions of a name.
    pub is_default: bool,
    /// Whether only its own source file sees it; or it was hidden and the linker made it so.
    pub is_local: bool,
    /// Address of its first instruction in the file's own address space.
    pub svma: u64,
    /// Bytes of code, 0 if not stated.
    pub size: u64,
}

/// Where a symbol table stands in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    symbols: Range,
    strings: Range,
    /// One u16 per symbol.
    versions: Option<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    offset: u64,
    size: u64,
}

impl Table {
    /// The first table of this `kind`, if there is one.
    pub(super) fn find(
        sections: &[SectionHeader64<LE>],
        kind: u32,
        file_bytes: u64,
    ) -> Result<Option<Table>, ElfError> {
        let of_kind = |kind| sections.iter().position(move |s| s.sh_type.get(LE) == kind);
        let Some(index) = of_kind(kind) else { return Ok(None) };
        let symbols = &sections[index];
        let strings = sections
            .get(symbols.sh_link.get(LE) as usize)
            .filter(|strings| strings.sh_type.get(LE) == elf::SHT_STRTAB)
            .ok_or(ElfError::Malformed("symbol table without strings"))?;
        let versions = sections.iter().find(|section| {
            section.sh_type.get(LE) == elf::SHT_GNU_VERSYM
                && section.sh_link.get(LE) as usize == index
        });
        let range = |section| Range::of(section, file_bytes);
        let versions = versions.map(range).transpose()?;
        Ok(Some(Table { symbols: range(symbols)?, strings: range(strings)?, versions }))
    }

    /// Defined functions with one of these names, in the table's order.
    pub(super) fn functions(
        &self,
        file: &File,
        names: &[&'static str],
    ) -> Result<Vec<Symbol>, ElfError> {
        let places = self.places(file, names)?;
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.symbols.size / SYMBOL_BYTES * SYMBOL_BYTES && found.len() < FOUND {
            let size = CHUNK_BYTES.min(self.symbols.size - at) / SYMBOL_BYTES * SYMBOL_BYTES;
            let bytes = self.symbols.read(file, at, size)?;
            let (symbols, _) =
                pod::slice_from_bytes::<Sym64<LE>>(&bytes, (size / SYMBOL_BYTES) as usize)
                    .map_err(|()| ElfError::Malformed("symbols"))?;
            for (index, symbol) in (at / SYMBOL_BYTES..).zip(symbols) {
                if let Some(&name) =
                    places.get(&symbol.st_name.get(LE)).filter(|_| is_function(symbol))
                {
                    found.push(Symbol {
                        name,
                        is_local: symbol.st_info >> 4 == elf::STB_LOCAL,
                        is_default: self.is_default(file, index)?,
                        svma: symbol.st_value.get(LE),
                        size: symbol.st_size.get(LE),
                    });
                }
            }
            at += size;
        }
        found.truncate(FOUND);
        Ok(found)
    }

    /// Every place in the string table where exactly one of the names stands.
    fn places(
        &self,
        file: &File,
        names: &[&'static str],
    ) -> Result<HashMap<u32, &'static str>, ElfError> {
        let overlap = names.iter().map(|name| name.len()).max().unwrap_or(0) as u64;
        let mut places = HashMap::new();
        let mut at = 0;
        while at < self.strings.size {
            // Names that end in this chunk may begin before it.
            let start = at.saturating_sub(overlap);
            let size = (CHUNK_BYTES + at - start).min(self.strings.size - start);
            let bytes = self.strings.read(file, start, size)?;
            for (end, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == 0) {
                let before = bytes.get(..end).unwrap_or_default();
                for name in names.iter().filter(|name| before.ends_with(name.as_bytes())) {
                    let place = start + (end - name.len()) as u64;
                    places.insert(place as u32, *name);
                }
            }
            at = start + size;
        }
        Ok(places)
    }

    fn is_default(&self, file: &File, index: u64) -> Result<bool, ElfError> {
        let Some(versions) = self.versions else { return Ok(true) };
        let bytes = versions.read(file, index * 2, 2)?;
        let version = bytes.iter().rev().fold(0u16, |word, &byte| word << 8 | u16::from(byte));
        Ok(version & VERSION_HIDDEN == 0)
    }
}

impl Range {
    fn of(section: &SectionHeader64<LE>, file_bytes: u64) -> Result<Range, ElfError> {
        let range = Range { offset: section.sh_offset.get(LE), size: section.sh_size.get(LE) };
        let inside = range.offset.checked_add(range.size).is_some_and(|end| end <= file_bytes);
        if inside && range.size <= SEARCHED_BYTES {
            Ok(range)
        } else {
            Err(ElfError::Malformed("symbol table outside the file or too large"))
        }
    }

    fn read(&self, file: &File, at: u64, size: u64) -> Result<Vec<u8>, ElfError> {
        if at.checked_add(size).is_none_or(|end| end > self.size) {
            return Err(ElfError::Malformed("symbol table shorter than it says"));
        }
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, self.offset + at)?;
        Ok(bytes)
    }
}

/// Defined and code. An `STT_GNU_IFUNC` is not the function
/// but the code that chooses it.
fn is_function(symbol: &Sym64<LE>) -> bool {
    symbol.st_shndx.get(LE) != elf::SHN_UNDEF && symbol.st_info & 0xf == elf::STT_FUNC
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const NAMES: &[&str] = &["malloc", "free", "cfree"];

    fn symbol(name: u32, info: u8, section: u16, svma: u64) -> Vec<u8> {
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend([info, 0]);
        bytes.extend(section.to_le_bytes());
        bytes.extend(svma.to_le_bytes());
        bytes.extend(16u64.to_le_bytes());
        bytes
    }

    /// A file of strings and symbols, and the table that describes it.
    fn table(strings: &[u8], symbols: &[Vec<u8>]) -> (File, Table) {
        let symbols = symbols.concat();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(strings).unwrap();
        file.write_all(&symbols).unwrap();
        let strings = Range { offset: 0, size: strings.len() as u64 };
        let symbols = Range { offset: strings.size, size: symbols.len() as u64 };
        (file, Table { symbols, strings, versions: None })
    }

    #[test]
    fn names_that_share_their_tail_are_found() {
        let strings = b"\0xmalloc\0cfree\0malloc\0mallocx\0free";
        let (file, table) = table(strings, &[]);
        let mut places: Vec<_> = table.places(&file, NAMES).unwrap().into_iter().collect();
        places.sort();
        // The last `free` has no end and is no string.
        assert_eq!(places, [(2, "malloc"), (9, "cfree"), (10, "free"), (15, "malloc")]);
    }

    #[test]
    fn names_across_the_end_of_a_chunk_are_found() {
        for end in (CHUNK_BYTES as usize - 8)..(CHUNK_BYTES as usize + 8) {
            let mut strings = vec![b'x'; 2 * CHUNK_BYTES as usize + 100];
            strings[end - 6..=end].copy_from_slice(b"malloc\0");
            let (file, table) = table(&strings, &[]);
            let places: Vec<_> = table.places(&file, NAMES).unwrap().into_iter().collect();
            assert_eq!(places, [(end as u32 - 6, "malloc")]);
        }
    }

    #[test]
    fn symbols_in_every_chunk_are_found() {
        let chunk = (CHUNK_BYTES / SYMBOL_BYTES) as usize;
        let mut symbols = vec![symbol(0, 0x12, 1, 0); 3 * chunk - 5];
        let last = symbols.len() - 1;
        for index in [0, chunk - 1, chunk, 2 * chunk, last] {
            symbols[index] = symbol(1, 0x12, 1, index as u64);
        }
        let (file, table) = table(b"\0malloc\0", &symbols);
        let svmas: Vec<_> = table
            .functions(&file, NAMES)
            .unwrap()
            .iter()
            .map(|symbol| symbol.svma as usize)
            .collect();
        assert_eq!(svmas, [0, chunk - 1, chunk, 2 * chunk, last]);
    }

    #[test]
    fn only_defined_functions_count() {
        let symbols = [
            symbol(1, 0x12, 0, 1), // not defined here
            symbol(1, 0x11, 1, 2), // an object
            symbol(1, 0x1a, 1, 3), // chooses an implementation
            symbol(2, 0x12, 1, 4), // `alloc`
            symbol(1, 0x22, 1, 5), // weak
            symbol(1, 0x02, 1, 6), // local
        ];
        let (file, table) = table(b"\0malloc\0", &symbols);
        let found = table.functions(&file, NAMES).unwrap();
        let seen: Vec<_> = found.iter().map(|symbol| (symbol.svma, symbol.is_local)).collect();
        assert_eq!(seen, [(5, false), (6, true)]);
    }

    #[test]
    fn a_table_full_of_the_same_name_is_cut() {
        let (file, table) = table(b"\0free\0", &vec![symbol(1, 0x12, 1, 7); 3 * FOUND]);
        assert_eq!(table.functions(&file, NAMES).unwrap().len(), FOUND);
    }
}
