//! One file that the loader has mapped: finds its symbols by name through the file's own hash
//! table.
//!
//! References: System V ABI (dynamic section, hash table); the GNU hash table (`DT_GNU_HASH`) as
//! glibc's elf/dl-lookup.c reads it.

use core::ffi::{c_char, c_void};

/// Maximum number of entries of a dynamic section, and of links of a chain.
const MAX_STEPS: usize = 1 << 20;

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// Bit of a version that is not the default one.
const HIDDEN: u16 = 0x8000;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// `struct link_map`
#[repr(C)]
pub(crate) struct Map {
    base: u64,
    name: *const c_char,
    pub(crate) dynamic: *const [u64; 2],
    pub(crate) next: *const Map,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The tables of a file that lead to its symbols.
#[derive(Default)]
struct Tables {
    hash: usize,
    gnu_hash: usize,
    strings: usize,
    symbols: usize,
    versions: usize,
}

impl Tables {
    fn of(map: &Map) -> Option<Tables> {
        let mut tables = Tables::default();
        if map.dynamic.is_null() {
            return None;
        }
        for step in 0..MAX_STEPS {
            // SAFETY: the file's dynamic section, which ends with DT_NULL.
            let [tag, value] = unsafe { map.dynamic.wrapping_add(step).read() };
            // glibc has written addresses there; other loaders leave the file's offsets.
            let address = if value < map.base { value.wrapping_add(map.base) } else { value };
            match tag {
                DT_NULL => break,
                DT_HASH => tables.hash = address as usize,
                DT_GNU_HASH => tables.gnu_hash = address as usize,
                DT_STRTAB => tables.strings = address as usize,
                DT_SYMTAB => tables.symbols = address as usize,
                DT_VERSYM => tables.versions = address as usize,
                _ => {}
            }
        }
        (tables.strings != 0 && tables.symbols != 0).then_some(tables)
    }

    /// The function at `index` of the symbols, if it has this name and is the default version.
    fn function(&self, map: &Map, index: u32, name: &[u8]) -> Option<*mut c_void> {
        // SAFETY: an index from the file's own hash table.
        let symbol = unsafe { &*(self.symbols as *const Symbol).wrapping_add(index as usize) };
        let kind = symbol.info & 15;
        let is_function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
        if symbol.section == 0 || !is_function || !self.is_named(symbol.name, name) {
            return None;
        }
        if self.versions != 0 {
            // SAFETY: there are as many versions as symbols.
            let version =
                unsafe { (self.versions as *const u16).wrapping_add(index as usize).read() };
            if version & HIDDEN != 0 {
                return None;
            }
        }
        let address = map.base.wrapping_add(symbol.value) as usize;
        if kind == STT_GNU_IFUNC {
            // SAFETY: the value of such a symbol is a function that returns the address.
            let resolve =
                unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut c_void>(address) };
            return Some(resolve());
        }
        Some(address as *mut c_void)
    }

    fn is_named(&self, offset: u32, name: &[u8]) -> bool {
        let text = (self.strings + offset as usize) as *const u8;
        // SAFETY: names end with a zero, which no byte of `name` equals.
        let byte = |at: usize| unsafe { text.wrapping_add(at).read() };
        name.iter().enumerate().all(|(at, of)| byte(at) == *of) && byte(name.len()) == 0
    }
}

/// The function with this name in a file.
pub(crate) fn find(map: &Map, name: &[u8]) -> Option<*mut c_void> {
    let tables = Tables::of(map)?;
    match (tables.gnu_hash, tables.hash) {
        (0, 0) => None,
        (0, _) => by_hash(&tables, map, name),
        _ => by_gnu_hash(&tables, map, name),
    }
}

/// Word `at` of a table of 32-bit words.
fn word(table: usize, at: usize) -> u32 {
    // SAFETY: the hash table's own words say that `at` is inside it.
    unsafe { (table as *const u32).wrapping_add(at).read() }
}

/// `nbuckets, symoffset, bloom_size, bloom_shift,
/// bloom[bloom_size] (64 bits each), buckets[nbuckets], chain[]`
fn by_gnu_hash(tables: &Tables, map: &Map, name: &[u8]) -> Option<*mut c_void> {
    let hash = name
        .iter()
        .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let table = tables.gnu_hash;
    let [buckets, first, bloom] = [0, 1, 2].map(|at| word(table, at));
    if buckets == 0 {
        return None;
    }
    let bucket = 4 + 2 * bloom as usize + (hash % buckets) as usize;
    let chain = 4 + 2 * bloom as usize + buckets as usize;
    let first_index = word(table, bucket);
    for step in 0..MAX_STEPS as u32 {
        let index = first_index.wrapping_add(step);
        let at = chain + index.checked_sub(first)? as usize;
        let of = word(table, at);
        if of | 1 == hash | 1
            && let Some(found) = tables.function(map, index, name)
        {
            return Some(found);
        }
        if of & 1 != 0 {
            return None;
        }
    }
    None
}

/// `nbucket, nchain, bucket[nbucket], chain[nchain]`
fn by_hash(tables: &Tables, map: &Map, name: &[u8]) -> Option<*mut c_void> {
    let hash = name.iter().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    });
    let table = tables.hash;
    let buckets = word(table, 0);
    if buckets == 0 {
        return None;
    }
    let mut index = word(table, 2 + (hash % buckets) as usize);
    for _ in 0..MAX_STEPS {
        if index == 0 {
            return None;
        }
        if let Some(found) = tables.function(map, index, name) {
            return Some(found);
        }
        index = word(table, 2 + buckets as usize + index as usize);
    }
    None
}
