//! jemalloc, whatever prefix it is built with: `je_`, `_rjem_` (Rust's `tikv-jemallocator`),
//! `je_arrow_`, …
//!
//! Every C function does its own work. In 5.3, malloc is inlined into `operator new`, which calls
//! `fallback_impl` for the other cases. Before 5.3, `operator new` calls malloc. `xallocx` only
//! resizes in place, and is no allocation.

use crate::inspect::allocator::family::{
    Entry, Family, aligned_at, calloc, free, malloc, posix_memalign, realloc,
};

pub(in crate::inspect) const JEMALLOC: Family = Family {
    name: "jemalloc",
    // Linkers leave out functions that a program does not call, so there are several names.
    // tcmalloc has no function with one of these names.
    unique_names: &["mallctl", "mallocx", "rallocx"],
    entries: &[
        malloc("malloc"),
        calloc("calloc"),
        realloc("realloc"),
        aligned_at("aligned_alloc", 1),
        aligned_at("memalign", 1),
        posix_memalign("posix_memalign"),
        malloc("valloc"),
        malloc("pvalloc"),
        malloc("mallocx"),
        realloc("rallocx"),
        free("free"),
        free("free_sized"),
        free("free_aligned_sized"),
        free("dallocx"),
        free("sdallocx"),
    ],
    behind_new: &["_Z13fallback_implILb0EEPvm", "_ZL13fallback_implILb0EEPvm"],
};

/// Functions that a caller calls if the fast path of malloc and free for small cached blocks is
/// inlined into it (as DuckDB's headers do). Otherwise these functions are behind `malloc`, `free`
/// and `sdallocx`.
pub(in crate::inspect) const BEHIND_INLINED: &[Entry] =
    &[malloc("malloc_default"), free("free_default"), free("sdallocx_default")];
