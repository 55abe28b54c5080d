//! Allocators by their functions: which functions are probed, in which role, and which names
//! identify an allocator.
//!
//! Each allocator has a file in `families/`. The tables do not say which function of an allocator
//! goes *through* another one, so that a probe on both would count a call twice. That differs
//! between versions, and `probes` reads it from the code. Only glibc's division of work is in a
//! table, because it depends on arguments.

use crate::inspect::families;
use sampler_common::wire::{NONE, Role, Shape};

/// A function that allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::inspect) struct Entry {
    /// The function's name.
    pub(in crate::inspect) symbol: &'static str,
    /// The function's role.
    pub(in crate::inspect) role: Role,
    /// Where the function's arguments are.
    pub(in crate::inspect) shape: Shape,
}

/// An allocator.
#[derive(Clone, Copy, Debug)]
pub(in crate::inspect) struct Family {
    /// The allocator's name.
    pub(in crate::inspect) name: &'static str,
    /// Functions that identify the allocator: a file that defines one of them contains it.
    pub(in crate::inspect) unique_names: &'static [&'static str],
    /// The allocator's own functions. The most usual name of a function comes before its aliases.
    pub(in crate::inspect) entries: &'static [Entry],
    /// Functions that the allocator's `operator new` calls if malloc is inlined into it.
    pub(in crate::inspect) behind_new: &'static [&'static str],
}

/// Beginnings of messages that only one allocator has. In a file without symbols they still show
/// the allocator.
pub(super) const MESSAGES: &[(&str, &str)] =
    &[("<jemalloc>: ", "jemalloc"), ("mimalloc: ", "mimalloc"), ("tcmalloc: ", "tcmalloc")];

/// All families. The first one that matches a file's `malloc` owns it.
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

pub(in crate::inspect) const fn entry(symbol: &'static str, role: Role, shape: Shape) -> Entry {
    Entry { symbol, role, shape }
}

/// A function like `malloc(size)`.
pub(in crate::inspect) const fn malloc(symbol: &'static str) -> Entry {
    entry(symbol, Role::Malloc, Shape::DEFAULT)
}

/// A function like `malloc`, with the size at another place.
pub(in crate::inspect) const fn malloc_at(symbol: &'static str, size: u8) -> Entry {
    entry(symbol, Role::Malloc, Shape::new(size, NONE, NONE))
}

/// A function like `calloc(count, size)`.
pub(in crate::inspect) const fn calloc(symbol: &'static str) -> Entry {
    entry(symbol, Role::Calloc, Shape::DEFAULT)
}

/// A function like `calloc`, with count and size at other places.
pub(in crate::inspect) const fn calloc_at(symbol: &'static str, count: u8, size: u8) -> Entry {
    entry(symbol, Role::Calloc, Shape::new(size, count, NONE))
}

/// A function like `realloc(old, size)`, whatever old and size are.
pub(in crate::inspect) const fn realloc(symbol: &'static str) -> Entry {
    realloc_at(symbol, 0, 1)
}

/// A function like `realloc`, with old and size at other places.
pub(in crate::inspect) const fn realloc_at(symbol: &'static str, old: u8, size: u8) -> Entry {
    entry(symbol, Role::Realloc, Shape::new(size, NONE, old))
}

/// A function like `reallocarray(old, count, size)`. `old` is the number of the argument old; count
/// and size follow it.
pub(in crate::inspect) const fn reallocarray_at(symbol: &'static str, old: u8) -> Entry {
    entry(symbol, Role::Realloc, Shape::new(old + 2, old + 1, old))
}

/// A function with an alignment that may be refused, and the size at this place.
pub(in crate::inspect) const fn aligned_at(symbol: &'static str, size: u8) -> Entry {
    entry(symbol, Role::AlignedAlloc, Shape::new(size, NONE, NONE))
}

/// A function like `posix_memalign(out, alignment, size)`, whatever the alignment.
pub(in crate::inspect) const fn posix_memalign(symbol: &'static str) -> Entry {
    entry(symbol, Role::PosixMemalign, Shape::new(2, NONE, 0))
}

/// A function like `free(pointer)`, with any further arguments.
pub(in crate::inspect) const fn free(symbol: &'static str) -> Entry {
    entry(symbol, Role::Free, Shape::DEFAULT)
}

/// A function like `operator new(size)`, which can throw.
pub(in crate::inspect) const fn new(symbol: &'static str) -> Entry {
    entry(symbol, Role::New, Shape::DEFAULT)
}

/// A function like `operator new`, with the size (and the count, if there is one) at other places.
pub(in crate::inspect) const fn new_at(symbol: &'static str, count: u8, size: u8) -> Entry {
    entry(symbol, Role::New, Shape::new(size, count, NONE))
}

/// The names that every replacement of malloc defines.
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
    // The nothrow operators return NULL instead of throwing, so their return may be probed.
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

/// Whether every replacement of malloc defines this name.
pub(super) fn is_standard(symbol: &str) -> bool {
    STANDARD.iter().any(|entry| entry.symbol == symbol)
}

/// Whether this is the name of one of C++'s allocation functions.
pub(in crate::inspect) fn is_operator(symbol: &str) -> bool {
    ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|prefix| symbol.starts_with(prefix))
}

/// The names that identify the families with functions of their own.
pub(in crate::inspect) fn unique_names() -> impl Iterator<Item = &'static str> {
    let families = FAMILIES.iter().filter(|family| !family.entries.is_empty());
    families.flat_map(|family| family.unique_names.iter().copied())
}

/// Every name to look up for all families.
pub(in crate::inspect) fn names() -> impl Iterator<Item = &'static str> {
    let own = FAMILIES.iter().flat_map(|family| {
        let entries = family.entries.iter().map(|entry| entry.symbol);
        entries.chain(family.unique_names.iter().copied()).chain(family.behind_new.iter().copied())
    });
    let inlined = families::jemalloc::BEHIND_INLINED.iter().map(|entry| entry.symbol);
    STANDARD.iter().map(|entry| entry.symbol).chain(own).chain(inlined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tables_of_families_are_consistent() {
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
            assert!(!family.unique_names.is_empty(), "{}", family.name);
        }
    }

    #[test]
    fn operators_that_throw_have_no_return_probe() {
        let all = FAMILIES.iter().flat_map(|family| family.entries).chain(STANDARD);
        for entry in all.filter(|entry| is_operator(entry.symbol)) {
            let is_new = entry.symbol.starts_with("_Zn");
            let throws = is_new && !entry.symbol.contains("nothrow");
            assert_eq!(entry.role == Role::New, throws, "{entry:?}");
            assert_eq!(entry.role == Role::Free, !is_new, "{entry:?}");
        }
    }
}
