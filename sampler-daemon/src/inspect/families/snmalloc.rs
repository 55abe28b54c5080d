//! snmalloc, with its prefix (`snmalloc-rs` too) and as `libsnmallocshim.so`. Every function does
//! its own work (src/snmalloc/override/malloc.cc and rust.cc).

use crate::inspect::allocator::family::{
    Family, aligned_at, calloc, free, malloc, malloc_at, posix_memalign, realloc, realloc_at,
    reallocarray_at,
};

pub(in crate::inspect) const SNMALLOC: Family = Family {
    name: "snmalloc",
    unique_names: &[
        "sn_malloc",
        "sn_rust_alloc",
        "snmalloc_get_allocator_stats",
        "__snmalloc_memcpy",
    ],
    entries: &[
        malloc("sn_malloc"),
        calloc("sn_calloc"),
        realloc("sn_realloc"),
        reallocarray_at("sn_reallocarray", 0),
        aligned_at("sn_aligned_alloc", 1),
        aligned_at("sn_memalign", 1),
        posix_memalign("sn_posix_memalign"),
        malloc("sn_valloc"),
        malloc("sn_pvalloc"),
        free("sn_free"),
        free("sn_cfree"),
        malloc_at("sn_rust_alloc", 1),
        malloc_at("sn_rust_alloc_zeroed", 1),
        realloc_at("sn_rust_realloc", 0, 3),
        free("sn_rust_dealloc"),
    ],
    behind_new: &[],
};
