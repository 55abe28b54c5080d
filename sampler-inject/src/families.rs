//! Allocators that programs call past `malloc`, by names of their own, as most Rust programs with
//! another global allocator do: jemalloc with a prefix (`_rjem_malloc`, `_rjem_sdallocx`), and
//! mimalloc (`mi_malloc_aligned`, `mi_free`).
//!
//! A function is served by one of the library's slots (`sampler-preload/src/heap.rs`). The slot's
//! shape says where the function has its size. Daemon and injector have tables of their own: the
//! daemon probes only the innermost functions, and the injector has to see every `realloc`.

/// How calls of a function are sampled: the name of a slot's shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// `free(block)`
    Freed,
    /// `realloc(block, size)`
    Moved,
    /// `realloc(heap, block, size)`
    SecondMoved,
    /// `reallocarray(block, count, size)`
    Array,
    /// `calloc(count, size)`
    Counted,
    /// `calloc(heap, count, size)`
    SecondCounted,
    /// `posix_memalign(place, alignment, size)`
    Stored,
    /// `malloc(size)`
    Sized,
    /// `aligned_alloc(alignment, size)`, `malloc(heap, size)`
    Second,
    /// A function that has no slot: one that frees or moves blocks in another way, or may throw an
    /// exception, which must not pass a frame of the sampler.
    Unserved,
}

impl Shape {
    /// Name of a slot of this shape.
    pub(crate) fn slot(self, number: usize) -> String {
        let shape = match self {
            Shape::Freed => "freed",
            Shape::Moved => "moved",
            Shape::SecondMoved => "second_moved",
            Shape::Array => "array",
            Shape::Counted => "counted",
            Shape::SecondCounted => "second_counted",
            Shape::Stored => "stored",
            Shape::Sized => "sized",
            Shape::Second => "second",
            Shape::Unserved => "unserved",
        };
        format!("sampler_preload_heap_{shape}_{number}")
    }
}

/// A function of an allocator.
pub struct Entry {
    /// The function's name, without the allocator's prefix.
    pub name: &'static str,
    /// Number of integer arguments.
    pub arguments: u8,
    /// How calls are sampled.
    pub shape: Shape,
}

/// An allocator.
pub struct Family {
    /// The allocator's name.
    pub name: &'static str,
    /// Functions that identify the allocator.
    pub marks: &'static [&'static str],
    /// Whether the names may have a prefix.
    pub has_prefix: bool,
    /// Frees first, then functions like `realloc`.
    pub entries: &'static [Entry],
    /// Functions that reach no other allocating function of the allocator by its public name, unless
    /// their own code calls it.
    pub plain: &'static [&'static str],
}

const fn entry(name: &'static str, arguments: u8, shape: Shape) -> Entry {
    Entry { name, arguments, shape }
}

/// All of them.
pub const FAMILIES: [Family; 2] = [JEMALLOC, MIMALLOC];

/// `xallocx` is absent: it only resizes in place.
const JEMALLOC: Family = Family {
    name: "jemalloc",
    marks: &["mallctl", "mallocx", "rallocx", "sdallocx"],
    has_prefix: true,
    entries: &[
        entry("free", 1, Shape::Freed),
        entry("dallocx", 2, Shape::Freed),
        entry("sdallocx", 3, Shape::Freed),
        entry("free_sized", 2, Shape::Freed),
        entry("free_aligned_sized", 3, Shape::Freed),
        entry("realloc", 2, Shape::Moved),
        entry("rallocx", 3, Shape::Moved),
        entry("calloc", 2, Shape::Counted),
        entry("posix_memalign", 3, Shape::Stored),
        entry("aligned_alloc", 2, Shape::Second),
        entry("memalign", 2, Shape::Second),
        entry("valloc", 1, Shape::Sized),
        entry("pvalloc", 1, Shape::Sized),
        entry("mallocx", 2, Shape::Sized),
        entry("malloc", 1, Shape::Sized),
    ],
    plain: &["malloc", "calloc", "mallocx"],
};

const MIMALLOC: Family = Family {
    name: "mimalloc",
    marks: &["mi_free"],
    has_prefix: false,
    entries: &[
        entry("mi_free", 1, Shape::Freed),
        entry("mi_cfree", 1, Shape::Freed),
        entry("mi_free_small", 1, Shape::Freed),
        entry("mi_free_size", 2, Shape::Freed),
        entry("mi_free_aligned", 2, Shape::Freed),
        entry("mi_free_size_aligned", 3, Shape::Freed),
        entry("mi_ufree", 2, Shape::Freed),
        entry("mi_realloc", 2, Shape::Moved),
        entry("mi_rezalloc", 2, Shape::Moved),
        entry("mi_realloc_aligned", 3, Shape::Moved),
        entry("mi_realloc_aligned_at", 4, Shape::Moved),
        entry("mi_rezalloc_aligned", 3, Shape::Moved),
        entry("mi_rezalloc_aligned_at", 4, Shape::Moved),
        entry("mi_urealloc", 4, Shape::Moved),
        entry("mi_heap_realloc", 3, Shape::SecondMoved),
        entry("mi_heap_rezalloc", 3, Shape::SecondMoved),
        entry("mi_heap_realloc_aligned", 4, Shape::SecondMoved),
        entry("mi_heap_realloc_aligned_at", 5, Shape::SecondMoved),
        entry("mi_heap_rezalloc_aligned", 4, Shape::SecondMoved),
        entry("mi_heap_rezalloc_aligned_at", 5, Shape::SecondMoved),
        entry("mi_theap_realloc", 3, Shape::SecondMoved),
        entry("mi_theap_rezalloc", 3, Shape::SecondMoved),
        entry("mi_theap_realloc_aligned", 4, Shape::SecondMoved),
        entry("mi_theap_realloc_aligned_at", 5, Shape::SecondMoved),
        entry("mi_theap_rezalloc_aligned", 4, Shape::SecondMoved),
        entry("mi_theap_rezalloc_aligned_at", 5, Shape::SecondMoved),
        entry("mi_reallocn", 3, Shape::Array),
        entry("mi_reallocarray", 3, Shape::Array),
        entry("mi_recalloc", 3, Shape::Array),
        entry("mi_recalloc_aligned", 4, Shape::Array),
        entry("mi_recalloc_aligned_at", 5, Shape::Array),
        entry("mi_reallocf", 2, Shape::Unserved),
        entry("mi_reallocarr", 3, Shape::Unserved),
        entry("mi_new", 1, Shape::Unserved),
        entry("mi_new_aligned", 2, Shape::Unserved),
        entry("mi_new_n", 2, Shape::Unserved),
        entry("mi_heap_alloc_new", 2, Shape::Unserved),
        entry("mi_heap_alloc_new_n", 3, Shape::Unserved),
        entry("mi_new_realloc", 2, Shape::Unserved),
        entry("mi_new_reallocn", 3, Shape::Unserved),
        entry("mi_heap_reallocf", 3, Shape::Unserved),
        entry("mi_heap_reallocn", 4, Shape::Unserved),
        entry("mi_heap_recalloc", 4, Shape::Unserved),
        entry("mi_heap_recalloc_aligned", 5, Shape::Unserved),
        entry("mi_heap_recalloc_aligned_at", 6, Shape::Unserved),
        entry("mi_theap_reallocf", 3, Shape::Unserved),
        entry("mi_theap_reallocn", 4, Shape::Unserved),
        entry("mi_theap_recalloc", 4, Shape::Unserved),
        entry("mi_theap_recalloc_aligned", 5, Shape::Unserved),
        entry("mi_theap_recalloc_aligned_at", 6, Shape::Unserved),
        entry("mi_calloc", 2, Shape::Counted),
        entry("mi_mallocn", 2, Shape::Counted),
        entry("mi_calloc_aligned", 3, Shape::Counted),
        entry("mi_calloc_aligned_at", 4, Shape::Counted),
        entry("mi_ucalloc", 3, Shape::Counted),
        entry("mi_heap_calloc", 3, Shape::SecondCounted),
        entry("mi_heap_mallocn", 3, Shape::SecondCounted),
        entry("mi_heap_calloc_aligned", 4, Shape::SecondCounted),
        entry("mi_heap_calloc_aligned_at", 5, Shape::SecondCounted),
        entry("mi_theap_calloc", 3, Shape::SecondCounted),
        entry("mi_theap_mallocn", 3, Shape::SecondCounted),
        entry("mi_theap_calloc_aligned", 4, Shape::SecondCounted),
        entry("mi_theap_calloc_aligned_at", 5, Shape::SecondCounted),
        entry("mi_posix_memalign", 3, Shape::Stored),
        entry("mi_aligned_alloc", 2, Shape::Second),
        entry("mi_memalign", 2, Shape::Second),
        entry("mi_heap_malloc", 2, Shape::Second),
        entry("mi_heap_zalloc", 2, Shape::Second),
        entry("mi_heap_malloc_small", 2, Shape::Second),
        entry("mi_heap_zalloc_small", 2, Shape::Second),
        entry("mi_heap_malloc_aligned", 3, Shape::Second),
        entry("mi_heap_malloc_aligned_at", 4, Shape::Second),
        entry("mi_heap_zalloc_aligned", 3, Shape::Second),
        entry("mi_heap_zalloc_aligned_at", 4, Shape::Second),
        entry("mi_theap_malloc", 2, Shape::Second),
        entry("mi_theap_zalloc", 2, Shape::Second),
        entry("mi_theap_malloc_small", 2, Shape::Second),
        entry("mi_theap_zalloc_small", 2, Shape::Second),
        entry("mi_theap_malloc_aligned", 3, Shape::Second),
        entry("mi_theap_malloc_aligned_at", 4, Shape::Second),
        entry("mi_theap_zalloc_aligned", 3, Shape::Second),
        entry("mi_theap_zalloc_aligned_at", 4, Shape::Second),
        entry("mi_valloc", 1, Shape::Sized),
        entry("mi_pvalloc", 1, Shape::Sized),
        entry("mi_new_nothrow", 1, Shape::Sized),
        entry("mi_new_aligned_nothrow", 2, Shape::Sized),
        entry("mi_umalloc", 2, Shape::Sized),
        entry("mi_umalloc_small", 2, Shape::Sized),
        entry("mi_umalloc_aligned", 3, Shape::Sized),
        entry("mi_uzalloc", 2, Shape::Sized),
        entry("mi_uzalloc_aligned", 3, Shape::Sized),
        entry("mi_zalloc_aligned", 2, Shape::Sized),
        entry("mi_zalloc_aligned_at", 3, Shape::Sized),
        entry("mi_malloc_aligned", 2, Shape::Sized),
        entry("mi_malloc_aligned_at", 3, Shape::Sized),
        entry("mi_zalloc_small", 1, Shape::Sized),
        entry("mi_malloc_small", 1, Shape::Sized),
        entry("mi_zalloc", 1, Shape::Sized),
        entry("mi_malloc", 1, Shape::Sized),
    ],
    plain: &[
        "mi_malloc",
        "mi_zalloc",
        "mi_malloc_small",
        "mi_zalloc_small",
        "mi_malloc_aligned",
        "mi_malloc_aligned_at",
        "mi_zalloc_aligned",
        "mi_zalloc_aligned_at",
        "mi_heap_malloc",
        "mi_heap_zalloc",
        "mi_heap_malloc_aligned",
        "mi_heap_malloc_aligned_at",
        "mi_heap_zalloc_aligned",
        "mi_heap_zalloc_aligned_at",
        "mi_theap_malloc",
        "mi_theap_zalloc",
        "mi_theap_malloc_aligned",
        "mi_theap_malloc_aligned_at",
        "mi_theap_zalloc_aligned",
        "mi_theap_zalloc_aligned_at",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tables_of_families_are_consistent() {
        for family in &FAMILIES {
            let names: HashSet<&str> = family.entries.iter().map(|of| of.name).collect();
            assert_eq!(names.len(), family.entries.len(), "{}", family.name);
            assert!(family.plain.iter().all(|name| names.contains(name)));
            let is_free = |of: &Entry| of.shape == Shape::Freed;
            let frees = family.entries.iter().take_while(|of| is_free(of)).count();
            assert!(frees > 0 && !family.entries[frees..].iter().any(is_free), "{}", family.name);
        }
    }
}
