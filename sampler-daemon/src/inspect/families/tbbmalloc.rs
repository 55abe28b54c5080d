//! oneTBB's allocator. `libtbbmalloc.so` has the functions; `libtbbmalloc_proxy.so` replaces malloc
//! and calls them.

use crate::inspect::allocator::family::{
    Family, aligned_at, calloc, free, malloc, posix_memalign, realloc,
};

pub(in crate::inspect) const SCALABLE: Family = Family {
    name: "tbbmalloc",
    unique_names: &["scalable_malloc"],
    entries: &[
        malloc("scalable_malloc"),
        calloc("scalable_calloc"),
        realloc("scalable_realloc"),
        aligned_at("scalable_aligned_malloc", 0),
        realloc("scalable_aligned_realloc"),
        posix_memalign("scalable_posix_memalign"),
        free("scalable_free"),
        free("scalable_aligned_free"),
        // Functions that the proxy calls for blocks that may belong to another allocator.
        realloc("__TBB_malloc_safer_realloc"),
        realloc("__TBB_malloc_safer_aligned_realloc"),
        free("__TBB_malloc_safer_free"),
    ],
    behind_new: &[],
};

/// The proxy library. Its functions call those of the other library, so none of them gets a probe.
pub(in crate::inspect) const PROXY: Family =
    Family { unique_names: &["__TBB_malloc_proxy"], ..SCALABLE };
