//! Finds a few functions by name in a symbol table of any size, without loading the table.
//!
//! Browsers and other very large static programs carry symbol tables of hundreds of megabytes. So
//! both halves of a table are streamed in one pass each. The first pass searches the string table
//! for every place of a wanted name. Linkers store `malloc` as the tail of `xmalloc`, so a name may
//! have several places. The second pass searches the symbols for those that point to such a place.
//! Programs that carry an allocator of their own give its names a prefix. Strings that end with a
//! name that no other allocator has show the prefix. Reference: elf(5).

use super::ElfError;
use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64, Sym64};
use object::pod;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes per read, a multiple of the size of a symbol.
const CHUNK_BYTES: u64 = 64 * SYMBOL_BYTES * 128;
const SYMBOL_BYTES: u64 = size_of::<Sym64<LE>>() as u64;
/// Largest half of a symbol table that is searched, in bytes (about a second of reading).
const SEARCHED_BYTES: u64 = 1 << 30;
/// Most symbols that one search returns. A file with more is not plausible.
const MAX_FOUND_SYMBOLS: usize = 1024;
/// Longest prefix before an allocator's names, in bytes.
const PREFIX_BYTES: usize = 64;
/// Most prefixes that one search returns.
const PREFIXES: usize = 4;
/// Bits of `st_other` that are a symbol's visibility.
const VISIBILITY: u8 = 3;
/// Bit of a version index that marks an old version, to which new programs cannot bind.
const VERSION_HIDDEN: u16 = 0x8000;

/// A defined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The name, without a version and without the requested prefix.
    pub name: &'static str,
    /// Whether new programs bind to it: false for the old versions of a name.
    pub is_default: bool,
    /// Whether only its own source file can call the function, or the linker made a hidden function
    /// local.
    pub is_local: bool,
    /// Whether the source declares the function hidden: files of the same link may call it, and no
    /// others. A `static` function is not hidden.
    pub is_hidden: bool,
    /// Address of the first instruction in the file's own address space.
    pub svma: u64,
    /// Bytes of code, 0 if not stated.
    pub size: u64,
}

/// What to search for.
#[derive(Clone, Copy, Debug)]
pub(in crate::inspect) struct Wanted<'w> {
    /// The prefix of each name, mostly empty.
    pub prefix: &'w str,
    /// The names.
    pub names: &'w [&'static str],
    /// Some of the names. Any other prefix of such a name is returned as a found prefix.
    pub unique_names: &'w [&'static str],
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub(in crate::inspect) struct Found {
    /// Defined functions, in the table's order.
    pub functions: Vec<Symbol>,
    /// Prefixes of the unique names, each once.
    pub prefixes: BTreeSet<String>,
}

/// The place of a symbol table in its file.
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
    pub(in crate::inspect) fn find(
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

    /// Bytes of both halves of the table.
    pub(super) fn bytes(&self) -> u64 {
        self.symbols.size.saturating_add(self.strings.size)
    }

    /// Defined functions with one of the wanted names.
    pub(in crate::inspect) fn functions(
        &self,
        file: &File,
        wanted: &Wanted<'_>,
    ) -> Result<Found, ElfError> {
        let mut found = Vec::new();
        let Places { names, prefixes } = self.places(file, wanted)?;
        self.each_named(file, &names, |index, name, symbol| {
            if is_function(symbol) {
                found.push(Symbol {
                    name,
                    is_local: symbol.st_info >> 4 == elf::STB_LOCAL,
                    is_hidden: symbol.st_other & VISIBILITY == elf::STV_HIDDEN,
                    is_default: self.is_default(file, index)?,
                    svma: symbol.st_value.get(LE),
                    size: symbol.st_size.get(LE),
                });
            }
            Ok(found.len())
        })?;
        found.truncate(MAX_FOUND_SYMBOLS);
        Ok(Found { functions: found, prefixes })
    }

    /// Address of the first defined object with this name.
    pub(in crate::inspect) fn data(
        &self,
        file: &File,
        name: &'static str,
    ) -> Result<Option<u64>, ElfError> {
        let wanted = Wanted { prefix: "", names: &[name], unique_names: &[] };
        let mut found = None;
        self.each_named(file, &self.places(file, &wanted)?.names, |_, _, symbol| {
            let is_object = symbol.st_info & 0xf == elf::STT_OBJECT;
            if found.is_none() && is_object && symbol.st_shndx.get(LE) != elf::SHN_UNDEF {
                found = Some(symbol.st_value.get(LE));
            }
            Ok(usize::from(found.is_some()))
        })?;
        Ok(found)
    }

    /// Indexes of the symbols, defined or not, that have one of these names behind the prefix.
    pub(in crate::inspect) fn names(
        &self,
        file: &File,
        prefix: &str,
        names: &[&'static str],
    ) -> Result<HashMap<u32, &'static str>, ElfError> {
        let mut found = HashMap::new();
        let places = self.places(file, &Wanted { prefix, names, unique_names: &[] })?.names;
        self.each_named(file, &places, |index, name, _| {
            found.insert(index as u32, name);
            Ok(found.len())
        })?;
        Ok(found)
    }

    /// Calls `each` for every symbol whose name is at one of these places, with the symbol's index,
    /// in the table's order. `each` returns how many symbols it has kept in all. Reading stops
    /// after the chunk in which that number reaches [`MAX_FOUND_SYMBOLS`].
    fn each_named(
        &self,
        file: &File,
        places: &HashMap<u32, &'static str>,
        mut each: impl FnMut(u64, &'static str, &Sym64<LE>) -> Result<usize, ElfError>,
    ) -> Result<(), ElfError> {
        if places.is_empty() {
            return Ok(());
        }
        let (mut kept, mut at) = (0, 0);
        while at < self.symbols.size / SYMBOL_BYTES * SYMBOL_BYTES && kept < MAX_FOUND_SYMBOLS {
            let size = CHUNK_BYTES.min(self.symbols.size - at) / SYMBOL_BYTES * SYMBOL_BYTES;
            let bytes = self.symbols.read(file, at, size)?;
            let (symbols, _) =
                pod::slice_from_bytes::<Sym64<LE>>(&bytes, (size / SYMBOL_BYTES) as usize)
                    .map_err(|()| ElfError::Malformed("symbols"))?;
            for (index, symbol) in (at / SYMBOL_BYTES..).zip(symbols) {
                if let Some(&name) = places.get(&symbol.st_name.get(LE)) {
                    kept = each(index, name, symbol)?;
                }
            }
            at += size;
        }
        Ok(())
    }

    /// Every place in the string table that holds the prefix and exactly one of the names.
    fn places(&self, file: &File, wanted: &Wanted<'_>) -> Result<Places, ElfError> {
        let longest = wanted.names.iter().map(|name| name.len()).max().unwrap_or(0);
        let overlap = (PREFIX_BYTES + longest) as u64;
        let tails = Tails::new(wanted.names);
        let prefix = wanted.prefix.as_bytes();
        let mut places = Places::default();
        let mut at = 0;
        while at < self.strings.size {
            // Names that end in this chunk may begin before it.
            let start = at.saturating_sub(overlap);
            let size = (CHUNK_BYTES + at - start).min(self.strings.size - start);
            let bytes = self.strings.read(file, start, size)?;
            let ends = bytes.iter().enumerate().skip((at - start) as usize);
            for (end, _) in ends.filter(|(_, byte)| **byte == 0) {
                let text = bytes.get(..end).unwrap_or_default();
                for name in tails.of(text) {
                    let Some(before) = text.strip_suffix(name.as_bytes()) else { continue };
                    if let Some(before) = before.strip_suffix(prefix) {
                        places.names.insert((start + before.len() as u64) as u32, *name);
                    }
                    if wanted.unique_names.contains(name) && places.prefixes.len() < PREFIXES {
                        places.prefixes.extend(prefix_at_end(before));
                    }
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

/// Places in a string table.
#[derive(Default)]
struct Places {
    /// By place: the name that is there.
    names: HashMap<u32, &'static str>,
    prefixes: BTreeSet<String>,
}

/// The string that ends here, if it can be part of a C name and is not empty.
fn prefix_at_end(text: &[u8]) -> Option<String> {
    let string = text.rsplit(|byte| *byte == 0).next().unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_prefix =
        !string.is_empty() && string.len() <= PREFIX_BYTES && string.iter().all(is_name);
    is_prefix.then(|| String::from_utf8_lossy(string).into_owned())
}

/// Names by their last bytes, so that a string is compared with few names.
struct Tails {
    by_tail: FxHashMap<[u8; TAIL_BYTES], Vec<&'static str>>,
    short: Vec<&'static str>,
}

const TAIL_BYTES: usize = 4;

impl Tails {
    fn new(names: &[&'static str]) -> Tails {
        let mut tails = Tails { by_tail: FxHashMap::default(), short: Vec::new() };
        for name in names.iter().filter(|name| !name.is_empty()) {
            match name.as_bytes().last_chunk() {
                Some(tail) => tails.by_tail.entry(*tail).or_default().push(*name),
                None => tails.short.push(*name),
            }
        }
        tails
    }

    fn of(&self, text: &[u8]) -> impl Iterator<Item = &&'static str> {
        let long = text.last_chunk().and_then(|tail| self.by_tail.get(tail));
        long.into_iter().flatten().chain(&self.short)
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

/// Whether the symbol is defined and code. An `STT_GNU_IFUNC` symbol is not the function but the
/// code that chooses the function.
fn is_function(symbol: &Sym64<LE>) -> bool {
    symbol.st_shndx.get(LE) != elf::SHN_UNDEF && symbol.st_info & 0xf == elf::STT_FUNC
}

#[cfg(test)]
mod tests;
