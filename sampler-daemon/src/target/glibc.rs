//! The malloc family of glibc: what each function does, and which need no probe of their own.
//!
//! A function is *through* another one when glibc calls that one for it, so that a probe on it
//! would count the call twice (malloc/malloc.c, malloc/reallocarray.c, string/strdup.c, …).

use super::allocator::Function;
use super::elf::{Elf, ElfError};
use super::placement::place;
use super::symbols::Symbol;
use sampler_common::wire::Role;
use std::collections::BTreeMap;

/// How a function of the family is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// By a probe on it.
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
    // Only old programs can still bind to it.
    ("cfree", Probe(Role::Free)),
    // C23. They may call free; the second look-up then misses, which harms nothing.
    ("free_sized", Probe(Role::Free)),
    ("free_aligned_sized", Probe(Role::Free)),
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

/// The names to look up: those that get a probe.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FAMILY.iter().filter(|(_, coverage)| matches!(coverage, Probe(_))).map(|(name, _)| *name)
}

/// Whether these definitions are glibc's own: other allocators define `malloc`, but not the name
/// under which glibc reaches it past an interposer; and musl, which has that one, keeps it private
/// and has no `__libc_memalign`.
pub(super) fn is_defined_by(symbols: &[Symbol]) -> bool {
    ["malloc", "free", "__libc_malloc", "__libc_memalign"]
        .iter()
        .all(|name| symbols.iter().any(|symbol| symbol.name == *name))
}

/// The functions to probe among these definitions: one for each address, with all its names.
/// One whose code cannot be read is left out and named in the second list, with the reason.
pub(super) fn functions(elf: &Elf<'_>, symbols: &[Symbol]) -> (Vec<Function>, Vec<String>) {
    let mut by_offset: BTreeMap<u64, Function> = BTreeMap::new();
    let mut skipped = Vec::new();
    for (name, coverage) in FAMILY {
        let Probe(role) = coverage else { continue };
        for symbol in symbols.iter().filter(|symbol| symbol.name == *name) {
            match function(elf, symbol, *role) {
                Ok(new) => {
                    let known = by_offset
                        .entry(new.offset)
                        .or_insert(Function { symbols: Vec::new(), ..new });
                    if !known.symbols.iter().any(|known| known == name) {
                        known.symbols.push((*name).to_owned());
                    }
                }
                Err(error) => skipped.push(format!("{name}: {error}")),
            }
        }
    }
    (by_offset.into_values().collect(), skipped)
}

fn function(elf: &Elf<'_>, symbol: &Symbol, role: Role) -> Result<Function, ElfError> {
    Ok(Function {
        symbols: Vec::new(),
        role,
        offset: elf.file_offset(symbol.svma)?,
        placement: place(&elf.code(symbol)?, symbol.svma, role),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_goes_through_a_function_goes_through_a_probed_one() {
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
