//! What `dlsym(RTLD_NEXT, …)` would find, read from the loader's own list without calling it: `dlsym` may allocate and takes the
//! loader's lock, and before glibc 2.34 a program need not have it.
//!
//! The list is `struct link_map` of link.h, from `_r_debug`: the program, what is preloaded, what these need. References: System V
//! ABI (dynamic section, hash table), "ELF: symbol hash table" of GNU (`DT_GNU_HASH`). Where there is no `_r_debug` (musl), `dlsym`
//! is asked, which there neither allocates nor may be missing.

use core::arch::asm;
use core::ffi::{c_char, c_void};

/// Files in the list, at most.
const MOST_FILES: usize = 4096;
/// Entries of a dynamic section, at most; links of a chain, at most.
const MOST_STEPS: usize = 1 << 20;

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

#[repr(C)]
struct Debug {
    version: i32,
    map: *const Map,
}

#[repr(C)]
struct Map {
    base: u64,
    name: *const c_char,
    dynamic: *const [u64; 2],
    next: *const Map,
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

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Address of a symbol that may be missing: 0 then.
macro_rules! weak {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads the entry of this name that the loader has written, before anybody could call us.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use weak;

/// Calls `take` with what finds a function by its name in the files behind this one: null if none has it.
pub fn with(take: impl FnOnce(&dyn Fn(&[u8]) -> *mut c_void)) {
    let debug = weak!("_r_debug") as *const Debug;
    if debug.is_null() {
        return take(&asked);
    }
    // SAFETY: the loader's, for debuggers; it stays.
    let first = unsafe { (*debug).map };
    let own = own_dynamic();
    let behind = maps(first).skip_while(|map| map.dynamic as usize != own).skip(1);
    let behind = || behind.clone();
    take(&|name| behind().find_map(|map| find(map, name)).unwrap_or(core::ptr::null_mut()));
}

/// As `dlsym` has it.
fn asked(name: &[u8]) -> *mut c_void {
    let dlsym = weak!("dlsym");
    let mut text = [0u8; 32];
    if dlsym == 0 || name.len() >= text.len() {
        return core::ptr::null_mut();
    }
    text.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: the function of that name is of this type everywhere.
    let dlsym = unsafe { core::mem::transmute::<usize, Dlsym>(dlsym) };
    // RTLD_NEXT
    let next = usize::MAX as *mut c_void;
    // SAFETY: the name ends with a zero.
    unsafe { dlsym(next, text.as_ptr().cast()) }
}

fn own_dynamic() -> usize {
    let address;
    // SAFETY: takes an address.
    unsafe {
        asm!(
            ".hidden _DYNAMIC",
            "lea {}, [rip + _DYNAMIC]",
            out(reg) address,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    address
}

fn maps(first: *const Map) -> impl Iterator<Item = &'static Map> + Clone {
    let mut next = first;
    let each = core::iter::from_fn({
        move || {
            // SAFETY: an entry of the loader's list, or null. Entries of what was there when the program began are never removed.
            let map: &'static Map = unsafe { next.as_ref() }?;
            next = map.next;
            Some(map)
        }
    });
    each.take(MOST_FILES)
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
        for step in 0..MOST_STEPS {
            // SAFETY: the file's dynamic section, which ends with DT_NULL.
            let [tag, value] = unsafe { map.dynamic.wrapping_add(step).read() };
            // glibc has written addresses there, others leave what the file says.
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

    /// The function at `index` of the symbols, if it has this name and is the one that a program gets which asks for no version.
    fn function(&self, map: &Map, index: u32, name: &[u8]) -> Option<*mut c_void> {
        // SAFETY: an index from the file's own hash table.
        let symbol = unsafe { &*(self.symbols as *const Symbol).wrapping_add(index as usize) };
        let kind = symbol.info & 15;
        let is_function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
        if symbol.section == 0 || !is_function || !self.is_named(symbol.name, name) {
            return None;
        }
        if self.versions != 0 {
            // SAFETY: as many as symbols.
            let version =
                unsafe { (self.versions as *const u16).wrapping_add(index as usize).read() };
            if version & HIDDEN != 0 {
                return None;
            }
        }
        let address = map.base.wrapping_add(symbol.value) as usize;
        if kind == STT_GNU_IFUNC {
            // SAFETY: such a symbol leads to a function that returns the address.
            let resolve =
                unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut c_void>(address) };
            return Some(resolve());
        }
        Some(address as *mut c_void)
    }

    fn is_named(&self, offset: u32, name: &[u8]) -> bool {
        let text = (self.strings + offset as usize) as *const u8;
        // SAFETY: texts end with a zero, which no byte of the name equals.
        let byte = |at: usize| unsafe { text.wrapping_add(at).read() };
        name.iter().enumerate().all(|(at, of)| byte(at) == *of) && byte(name.len()) == 0
    }
}

fn find(map: &Map, name: &[u8]) -> Option<*mut c_void> {
    let tables = Tables::of(map)?;
    match (tables.gnu_hash, tables.hash) {
        (0, 0) => None,
        (0, _) => by_hash(&tables, map, name),
        _ => by_gnu_hash(&tables, map, name),
    }
}

/// Word `at` of a table of 32-bit words.
fn word(table: usize, at: usize) -> u32 {
    // SAFETY: inside a hash table, as its own words say.
    unsafe { (table as *const u32).wrapping_add(at).read() }
}

/// `nbuckets, symoffset, bloom_size, bloom_shift, bloom[bloom_size] (64 bits each), buckets[nbuckets], chain[]`
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
    for step in 0..MOST_STEPS as u32 {
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
    for _ in 0..MOST_STEPS {
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
