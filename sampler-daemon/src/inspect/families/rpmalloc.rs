//! rpmalloc: linked into programs, with or without replacing malloc (rpmalloc.h, malloc.c of
//! rpmalloc 1.4).

use crate::inspect::allocator::family::{
    Family, aligned_at, calloc, free, malloc, posix_memalign, realloc,
};

pub(in crate::inspect) const RPMALLOC: Family = Family {
    name: "rpmalloc",
    unique_names: &["rpmalloc"],
    entries: &[
        malloc("rpmalloc"),
        malloc("rpzalloc"),
        calloc("rpcalloc"),
        realloc("rprealloc"),
        aligned_at("rpaligned_alloc", 1),
        aligned_at("rpmemalign", 1),
        posix_memalign("rpposix_memalign"),
        free("rpfree"),
    ],
    behind_new: &[],
};
