//! Names of entries of procedure linkage tables (PLT), which no symbol table has.
//!
//! An entry jumps to the address in a slot of the global offset table (GOT), and a relocation of
//! that slot names the function. The entry is shown as `malloc@plt`, as disassemblers show it.
//!
//! Reference: the System V ABI for x86-64, 5.2 "Dynamic Linking".

use super::demangled::{demangled, unversioned};
use super::elf::{Elf, open};
use object::read::ReadCache;
use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _,
    RelocationTarget,
};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::ops::Range;

/// The sections with entries.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// Maximum bytes of a section that are read. LibreOffice's largest tables take some 300 KiB.
const MAX_BYTES: u64 = 4 << 20;

/// `jmp *displacement(%rip)`, without the displacement.
const JUMP: [u8; 2] = [0xff, 0x25];

/// The tables of a file. Their entries are read when one is asked for, which is rare.
#[derive(Default)]
pub(super) struct Plt {
    path: String,
    sections: Vec<Range<u64>>,
    entries: OnceCell<Vec<Entry>>,
}

struct Entry {
    addresses: Range<u64>,
    name: String,
}

impl Plt {
    /// The tables of the file at `path`. Only files for x86-64 have any.
    pub(super) fn of(path: &str, elf: &Elf<'_>) -> Plt {
        if elf.architecture() != Architecture::X86_64 {
            return Plt::default();
        }
        let sections = SECTIONS.iter().filter_map(|name| elf.section_by_name(name));
        let sections = sections
            .map(|section| section.address()..section.address().saturating_add(section.size()));
        Plt { path: path.to_owned(), sections: sections.collect(), entries: OnceCell::new() }
    }

    /// The name of the entry at an address.
    pub(super) fn name(&self, address: u64) -> Option<String> {
        self.sections.iter().find(|section| section.contains(&address))?;
        let entries = self.entries.get_or_init(|| read(&self.path).unwrap_or_default());
        let next = entries.partition_point(|entry| entry.addresses.start <= address);
        let entry = &entries[next.checked_sub(1)?];
        entry.addresses.contains(&address).then(|| entry.name.clone())
    }
}

/// The entries of the file at `path`, sorted by address.
fn read(path: &str) -> Option<Vec<Entry>> {
    let cache = ReadCache::new(open(path).ok()?);
    let elf = Elf::parse(&cache).ok()?;
    let slots = slots(&elf);
    let mut entries = Vec::new();
    for section in SECTIONS.iter().filter_map(|name| elf.section_by_name(name)) {
        if section.size() > MAX_BYTES {
            continue;
        }
        let Ok(bytes) = section.data() else { continue };
        // `.plt.got` has entries of 8 bytes if they need no `endbr64`.
        let is_short = section.name() == Ok(".plt.got") && bytes.starts_with(&JUMP);
        let entry_bytes = if is_short { 8 } else { 16 };
        for (at, entry) in bytes.chunks_exact(entry_bytes).enumerate() {
            let start = section.address().wrapping_add((at * entry_bytes) as u64);
            if let Some(name) = slot(start, entry).and_then(|slot| slots.get(&slot)) {
                let name = format!("{}@plt", demangled(unversioned(name)));
                let addresses = start..start.saturating_add(entry_bytes as u64);
                entries.push(Entry { addresses, name });
            }
        }
    }
    entries.sort_by_key(|entry| entry.addresses.start);
    Some(entries)
}

/// The names of functions by the slots of the GOT that hold their addresses.
fn slots<'file>(elf: &Elf<'file>) -> FxHashMap<u64, &'file str> {
    let Some(symbols) = elf.dynamic_symbol_table() else { return FxHashMap::default() };
    let relocations = elf.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(slot, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let name = symbols.symbol_by_index(index).ok()?.name().ok()?;
            (!name.is_empty()).then_some((slot, name))
        })
        .collect()
}

/// The slot to which an entry jumps.
fn slot(address: u64, entry: &[u8]) -> Option<u64> {
    let at = entry.windows(JUMP.len()).position(|bytes| bytes == JUMP)?;
    let end = at + JUMP.len() + 4;
    let displacement = entry.get(at + JUMP.len()..end)?.try_into().ok()?;
    let displacement = i64::from(i32::from_le_bytes(displacement));
    Some(address.wrapping_add(end as u64).wrapping_add_signed(displacement))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_jumps_to_its_slot() {
        let lazy = [0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff];
        assert_eq!(slot(0x1030, &lazy), Some(0x1030 + 6 + 0x2fe2));
        let with_endbr = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xfe, 0xff, 0xff, 0xff];
        assert_eq!(slot(0x1000, &with_endbr), Some(0x1000 + 10 - 2));
        let with_bnd = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1, 0, 0, 0, 0x0f];
        assert_eq!(slot(0x1000, &with_bnd), Some(0x1000 + 11 + 1));
        for cut in [&[][..], &[0xff], &[0xff, 0x25, 0, 0, 0]] {
            assert_eq!(slot(0x1000, cut), None);
        }
    }
}
