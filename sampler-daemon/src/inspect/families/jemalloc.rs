//! jemalloc, whatever prefix it is built with: `je_`, `_rjem_` (Rust's `tikv-jemallocator`), `je_arrow_`, …
//!
//! Every C function does its own work. In 5.3 `operator new` has malloc inlined, and calls `fallback_impl` where that does not
//! suffice; before it calls malloc. `xallocx` resizes in place only, and is no allocation.

use crate::inspect::family::{
    Entry, Family, aligned_at, calloc, free, malloc, posix_memalign, realloc,
};

pub(in crate::inspect) const JEMALLOC: Family = Family {
    name: "jemalloc",
    // Linkers leave out what a program does not call; tcmalloc has no function of one of these names.
    marks: &["mallctl", "mallocx", "rallocx"],
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

/// What a caller calls that has malloc's and free's way for small cached blocks inlined (DuckDB's headers have it); else these are
/// behind `malloc`, `free` and `sdallocx`.
pub(in crate::inspect) const BEHIND_INLINED: &[Entry] =
    &[malloc("malloc_default"), free("free_default"), free("sdallocx_default")];
