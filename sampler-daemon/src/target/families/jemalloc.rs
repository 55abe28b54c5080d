//! jemalloc, under each of the prefixes that it is built with.
//!
//! Every C function does its own work. In 5.3 `operator new` has malloc inlined, and calls `fallback_impl` where that does not
//! suffice; before it calls malloc. `xallocx` resizes in place only, and is no allocation.

use crate::target::family::{
    Entry, Family, aligned_at, calloc, free, malloc, posix_memalign, realloc,
};

macro_rules! entries {
    ($prefix:literal) => {
        &[
            malloc(concat!($prefix, "malloc")),
            calloc(concat!($prefix, "calloc")),
            realloc(concat!($prefix, "realloc")),
            aligned_at(concat!($prefix, "aligned_alloc"), 1),
            aligned_at(concat!($prefix, "memalign"), 1),
            posix_memalign(concat!($prefix, "posix_memalign")),
            malloc(concat!($prefix, "valloc")),
            malloc(concat!($prefix, "pvalloc")),
            malloc(concat!($prefix, "mallocx")),
            realloc(concat!($prefix, "rallocx")),
            free(concat!($prefix, "free")),
            free(concat!($prefix, "free_sized")),
            free(concat!($prefix, "free_aligned_sized")),
            free(concat!($prefix, "dallocx")),
            free(concat!($prefix, "sdallocx")),
        ]
    };
}

const fn family(marks: &'static [&'static str], entries: &'static [Entry]) -> Family {
    Family {
        name: "jemalloc",
        marks,
        entries,
        behind_new: &["_Z13fallback_implILb0EEPvm", "_ZL13fallback_implILb0EEPvm"],
    }
}

/// Without a prefix: distributions, and programs that let it take malloc's place.
pub(in crate::target) const PLAIN: Family = family(&["mallctl"], entries!(""));
/// `--with-jemalloc-prefix=je_`
pub(in crate::target) const JE: Family = family(&["je_malloc", "je_mallctl"], entries!("je_"));
/// Rust's `tikv-jemallocator`.
pub(in crate::target) const RUST: Family =
    family(&["_rjem_malloc", "_rjem_mallctl"], entries!("_rjem_"));
/// The same, where its own names have the second prefix too.
pub(in crate::target) const RUST_JE: Family =
    family(&["_rjem_je_malloc", "_rjem_je_mallctl"], entries!("_rjem_je_"));
