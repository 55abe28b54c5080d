//! The malloc family of glibc: the role of each function, and which functions need no probe of
//! their own.
//!
//! A function is *through* another one if it calls that one, so that a probe on both would count
//! the call twice (malloc/malloc.c, malloc/reallocarray.c, string/strdup.c, …).

use crate::inspect::allocator::family::{Entry, entry};
use crate::inspect::elf::symbols::Symbol;
use sampler_common::wire::{Role, Shape};

/// How calls of a function are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// By a probe on the function.
    Probe(Role),
    /// By the probe on the function that it calls.
    Through(&'static str),
}
use Coverage::{Probe, Through};

/// Symbol and coverage, the most usual name of a function before its aliases.
const FAMILY: &[(&str, Coverage)] = &[
    ("malloc", Probe(Role::Malloc)),
    ("__libc_malloc", Probe(Role::Malloc)),
    ("calloc", Probe(Role::Calloc)),
    ("__libc_calloc", Probe(Role::Calloc)),
    ("realloc", Probe(Role::Realloc)),
    ("__libc_realloc", Probe(Role::Realloc)),
    ("aligned_alloc", Probe(Role::AlignedAlloc)),
    ("memalign", Probe(Role::AlignedAlloc)),
    ("__libc_memalign", Probe(Role::AlignedAlloc)),
    ("posix_memalign", Probe(Role::PosixMemalign)),
    ("__posix_memalign", Probe(Role::PosixMemalign)),
    // One argument, the size; the alignment is the page's.
    ("valloc", Probe(Role::Malloc)),
    ("__libc_valloc", Probe(Role::Malloc)),
    ("pvalloc", Probe(Role::Malloc)),
    ("__libc_pvalloc", Probe(Role::Malloc)),
    ("free", Probe(Role::Free)),
    ("__libc_free", Probe(Role::Free)),
    // Only old programs can still bind to `cfree`.
    ("cfree", Probe(Role::Free)),
    // C23. These functions may call free. Then the second look-up of the block finds nothing, which
    // does no harm.
    ("free_sized", Probe(Role::Free)),
    ("free_aligned_sized", Probe(Role::Free)),
    // Mappings, both the program's and malloc's own. The stack tells which.
    ("mmap", Probe(Role::Map)),
    ("mmap64", Probe(Role::Map)),
    ("munmap", Probe(Role::Unmap)),
    ("mremap", Probe(Role::Remap)),
    ("sbrk", Probe(Role::MoveBreak)),
    ("reallocarray", Through("realloc")),
    ("__libc_reallocarray", Through("realloc")),
    ("strdup", Through("malloc")),
    ("__strdup", Through("malloc")),
    ("strndup", Through("malloc")),
    ("__strndup", Through("malloc")),
    ("asprintf", Through("malloc")),
    ("vasprintf", Through("malloc")),
    ("getline", Through("realloc")),
    ("getdelim", Through("realloc")),
];

/// The names to look up: functions that get a probe.
pub(in crate::inspect) fn names() -> impl Iterator<Item = &'static str> {
    FAMILY.iter().filter(|(_, coverage)| matches!(coverage, Probe(_))).map(|(name, _)| *name)
}

/// Whether these definitions are the dynamic libc's. Other allocators define `malloc`, but not the
/// name under which glibc reaches it past an interposer.
pub(in crate::inspect) fn is_shared(symbols: &[Symbol]) -> bool {
    define(symbols, &["malloc", "free", "__libc_malloc"])
}

/// Whether these definitions are those of a statically linked glibc. musl has a `__libc_malloc`
/// too, but no `__libc_memalign`.
pub(in crate::inspect) fn is_static(symbols: &[Symbol]) -> bool {
    is_shared(symbols) && define(symbols, &["__libc_memalign"])
}

fn define(symbols: &[Symbol], names: &[&str]) -> bool {
    names.iter().all(|name| symbols.iter().any(|symbol| symbol.name == *name))
}

/// The functions that get a probe. The role's default shape decides which calls a function leaves
/// to another one.
pub(in crate::inspect) fn entries() -> Vec<Entry> {
    let probed = FAMILY.iter().filter_map(|(name, coverage)| match coverage {
        Probe(role) => Some(entry(name, *role, Shape::DEFAULT)),
        Through(_) => None,
    });
    probed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_functions_reach_a_probed_function() {
        for (name, coverage) in FAMILY {
            if let Through(other) = coverage {
                assert!(
                    FAMILY.contains(&(other, Probe(Role::Malloc)))
                        || FAMILY.contains(&(other, Probe(Role::Realloc))),
                    "{name}"
                );
            }
        }
    }
}
