//! Allocators by their functions: which are probed, as what, and by which names an allocator is known.
//!
//! One file in `families/` for each. Which function of an allocator goes *through* another one of it, so that a probe on both
//! would count a call twice, is not in the tables: it differs between versions, and the code says it (see `probes`). Only
//! glibc's division of work is written down, because it depends on arguments.

use super::families;
use sampler_common::wire::{NONE, Role, Shape};

/// A function that allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name.
    pub(super) symbol: &'static str,
    /// What it does.
    pub(super) role: Role,
    /// Where its arguments are.
    pub(super) shape: Shape,
}

/// An allocator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// What it is called.
    pub(super) name: &'static str,
    /// A file that defines one of these functions contains it.
    pub(super) marks: &'static [&'static str],
    /// Its own functions, the most usual name of one before its aliases.
    pub(super) entries: &'static [Entry],
    /// Functions that its `operator new` calls when it has malloc inlined.
    pub(super) behind_new: &'static [&'static str],
}

/// Beginnings of messages, with the allocator that alone has them: what is left of it in a file without symbols.
pub(super) const MESSAGES: &[(&str, &str)] =
    &[("<jemalloc>: ", "jemalloc"), ("mimalloc: ", "mimalloc"), ("tcmalloc: ", "tcmalloc")];

/// All families, in the order in which a file's `malloc` is ascribed to one of them.
pub(super) const FAMILIES: &[Family] = &[
    families::musl::MUSL,
    families::tcmalloc::GPERFTOOLS,
    families::tcmalloc::GOOGLE,
    families::mimalloc::MIMALLOC,
    families::mimalloc::MIMALLOC_THEAP,
    families::snmalloc::SNMALLOC,
    families::tbbmalloc::PROXY,
    families::tbbmalloc::SCALABLE,
    families::rpmalloc::RPMALLOC,
    families::jemalloc::JEMALLOC,
];

pub(super) const fn entry(symbol: &'static str, role: Role, shape: Shape) -> Entry {
    Entry { symbol, role, shape }
}

/// As `malloc(size)`.
pub(super) const fn malloc(symbol: &'static str) -> Entry {
    entry(symbol, Role::Malloc, Shape::DEFAULT)
}

/// As `malloc`, with the size at another place.
pub(super) const fn malloc_at(symbol: &'static str, size: u8) -> Entry {
    entry(symbol, Role::Malloc, Shape::new(size, NONE, NONE))
}

/// As `calloc(count, size)`.
pub(super) const fn calloc(symbol: &'static str) -> Entry {
    entry(symbol, Role::Calloc, Shape::DEFAULT)
}

/// As `calloc`, with count and size at other places.
pub(super) const fn calloc_at(symbol: &'static str, count: u8, size: u8) -> Entry {
    entry(symbol, Role::Calloc, Shape::new(size, count, NONE))
}

/// As `realloc(old, size)`, whatever old and size are.
pub(super) const fn realloc(symbol: &'static str) -> Entry {
    realloc_at(symbol, 0, 1)
}

/// As `realloc`, with old and size at other places.
pub(super) const fn realloc_at(symbol: &'static str, old: u8, size: u8) -> Entry {
    entry(symbol, Role::Realloc, Shape::new(size, NONE, old))
}

/// As `reallocarray(old, count, size)`, `old` being argument number `old`, and the others behind it.
pub(super) const fn reallocarray_at(symbol: &'static str, old: u8) -> Entry {
    entry(symbol, Role::Realloc, Shape::new(old + 2, old + 1, old))
}

/// With an alignment that may be refused, and the size at this place.
pub(super) const fn aligned_at(symbol: &'static str, size: u8) -> Entry {
    entry(symbol, Role::AlignedAlloc, Shape::new(size, NONE, NONE))
}

/// As `posix_memalign(out, alignment, size)`, whatever the alignment.
pub(super) const fn posix_memalign(symbol: &'static str) -> Entry {
    entry(symbol, Role::PosixMemalign, Shape::new(2, NONE, 0))
}

/// As `free(pointer)`, with whatever arguments behind it.
pub(super) const fn free(symbol: &'static str) -> Entry {
    entry(symbol, Role::Free, Shape::DEFAULT)
}

/// As `operator new(size)`: it can throw.
pub(super) const fn new(symbol: &'static str) -> Entry {
    entry(symbol, Role::New, Shape::DEFAULT)
}

/// As `operator new`, with the size (and the count, if there is one) at other places.
pub(super) const fn new_at(symbol: &'static str, count: u8, size: u8) -> Entry {
    entry(symbol, Role::New, Shape::new(size, count, NONE))
}

/// The names that every allocator defines which takes malloc's place.
pub(super) const STANDARD: &[Entry] = &[
    malloc("malloc"),
    calloc("calloc"),
    realloc("realloc"),
    reallocarray_at("reallocarray", 0),
    aligned_at("aligned_alloc", 1),
    aligned_at("memalign", 1),
    posix_memalign("posix_memalign"),
    malloc("valloc"),
    malloc("pvalloc"),
    free("free"),
    free("cfree"),
    free("free_sized"),
    free("free_aligned_sized"),
    malloc("__libc_malloc"),
    calloc("__libc_calloc"),
    realloc("__libc_realloc"),
    aligned_at("__libc_memalign", 1),
    posix_memalign("__posix_memalign"),
    malloc("__libc_valloc"),
    malloc("__libc_pvalloc"),
    free("__libc_free"),
    free("__libc_cfree"),
    new("_Znwm"),
    new("_Znam"),
    new("_ZnwmSt11align_val_t"),
    new("_ZnamSt11align_val_t"),
    // They return NULL instead, so that their return may be probed.
    malloc("_ZnwmRKSt9nothrow_t"),
    malloc("_ZnamRKSt9nothrow_t"),
    malloc("_ZnwmSt11align_val_tRKSt9nothrow_t"),
    malloc("_ZnamSt11align_val_tRKSt9nothrow_t"),
    free("_ZdlPv"),
    free("_ZdaPv"),
    free("_ZdlPvm"),
    free("_ZdaPvm"),
    free("_ZdlPvRKSt9nothrow_t"),
    free("_ZdaPvRKSt9nothrow_t"),
    free("_ZdlPvSt11align_val_t"),
    free("_ZdaPvSt11align_val_t"),
    free("_ZdlPvmSt11align_val_t"),
    free("_ZdaPvmSt11align_val_t"),
    free("_ZdlPvSt11align_val_tRKSt9nothrow_t"),
    free("_ZdaPvSt11align_val_tRKSt9nothrow_t"),
];

/// Whether every allocator that takes malloc's place defines this name.
pub(super) fn is_standard(symbol: &str) -> bool {
    STANDARD.iter().any(|entry| entry.symbol == symbol)
}

/// Whether this is the name of one of C++'s allocation functions.
pub(super) fn is_operator(symbol: &str) -> bool {
    ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|prefix| symbol.starts_with(prefix))
}

/// The names by which an allocator is known, if its own functions are.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    let families = FAMILIES.iter().filter(|family| !family.entries.is_empty());
    families.flat_map(|family| family.marks.iter().copied())
}

/// Every name to look up for these families.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let own = FAMILIES.iter().flat_map(|family| {
        let entries = family.entries.iter().map(|entry| entry.symbol);
        entries.chain(family.marks.iter().copied()).chain(family.behind_new.iter().copied())
    });
    let inlined = families::jemalloc::BEHIND_INLINED.iter().map(|entry| entry.symbol);
    STANDARD.iter().map(|entry| entry.symbol).chain(own).chain(inlined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tables_make_sense() {
        for family in FAMILIES {
            let mut seen = HashSet::new();
            for entry in family.entries {
                assert!(seen.insert(entry.symbol), "{}: {} twice", family.name, entry.symbol);
                let shape = entry.shape;
                let last = [shape.size(), shape.count(), shape.pointer()];
                assert!(!shape.is_own() || last.iter().all(|of| *of <= 5 || *of == NONE));
                let has_pointer = matches!(entry.role, Role::Realloc | Role::PosixMemalign);
                assert_eq!(has_pointer, shape.is_own() && shape.pointer() != NONE, "{entry:?}");
            }
            assert!(!family.marks.is_empty(), "{}", family.name);
        }
    }

    #[test]
    fn what_can_throw_is_never_probed_at_its_return() {
        let all = FAMILIES.iter().flat_map(|family| family.entries).chain(STANDARD);
        for entry in all.filter(|entry| is_operator(entry.symbol)) {
            let is_new = entry.symbol.starts_with("_Zn");
            let throws = is_new && !entry.symbol.contains("nothrow");
            assert_eq!(entry.role == Role::New, throws, "{entry:?}");
            assert_eq!(entry.role == Role::Free, !is_new, "{entry:?}");
        }
    }
}
