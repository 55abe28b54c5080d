//! The definitions in a file that may belong to an allocator, by the prefix of their names.
//!
//! Libraries and programs with an allocator of their own give its functions a prefix
//! (`je_arrow_malloc`), do not export them, or both. So the symbol table that `strip` removes is
//! searched as well. The text before a name that only one allocator has (`mallctl`) is a prefix if
//! the allocator's other functions have it too.

use super::family::{self, Entry, FAMILIES, Family, is_standard};
use crate::inspect::elf::symbols::{Found, Symbol, Wanted};
use crate::inspect::elf::{Elf, ElfError};
use crate::inspect::families::jemalloc::JEMALLOC;
use sampler_common::wire::Role;
use std::collections::{BTreeSet, HashSet};

/// Definitions with names from the allocators' tables.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// Definitions with these very names.
    pub(super) plain: Vec<Symbol>,
    /// By prefix: definitions with a prefix, of whole allocators only.
    pub(super) prefixed: Vec<(String, Vec<Symbol>)>,
    /// Whether other files of a process may bind to the file's `malloc`.
    pub(super) exports_malloc: bool,
}

impl Definitions {
    /// Finds the functions of these names in a file. `user_functions` are those that the user
    /// named.
    pub(super) fn read(
        elf: &Elf<'_>,
        names: &[&'static str],
        user_functions: &[Entry],
    ) -> Result<Definitions, ElfError> {
        let unique_names: Vec<&'static str> = family::unique_names().collect();
        let wanted = Wanted { prefix: "", names, unique_names: &unique_names };
        let [exported, all] = elf.both_functions(&wanted)?;
        let exports_malloc = defines(&exported.functions, "malloc");
        let prefixes: BTreeSet<&String> = exported.prefixes.union(&all.prefixes).collect();
        let mut prefixed = Vec::new();
        for prefix in prefixes {
            let behind =
                merged(elf.both_functions(&Wanted { prefix, unique_names: &[], ..wanted })?);
            if FAMILIES.iter().any(|family| is_whole(family, &behind)) {
                prefixed.push((prefix.clone(), behind));
            }
        }
        let mut plain = merged([exported, all]);
        drop_namesakes(&mut plain, user_functions);
        Ok(Definitions { plain, prefixed, exports_malloc })
    }
}

fn merged([exported, all]: [Found; 2]) -> Vec<Symbol> {
    let mut symbols = exported.functions;
    for of in all.functions {
        if !symbols.iter().any(|known| known.name == of.name && known.svma == of.svma) {
            symbols.push(of);
        }
    }
    symbols
}

/// Whether a function of this name is among the symbols.
pub(super) fn defines(symbols: &[Symbol], name: &str) -> bool {
    symbols.iter().any(|symbol| symbol.name == name)
}

/// Whether the symbols are a whole allocator of this family: a function that only the family has,
/// one that allocates, and one that frees.
pub(super) fn is_whole(family: &Family, symbols: &[Symbol]) -> bool {
    let has = |is_wanted: fn(&Entry) -> bool| {
        let mut entries = family.entries.iter().filter(|entry| is_wanted(entry));
        entries.any(|entry| defines(symbols, entry.symbol))
    };
    family.unique_names.iter().any(|unique_name| defines(symbols, unique_name))
        && has(|entry| entry.role != Role::Free)
        && has(|entry| entry.role == Role::Free)
}

/// Leaves out functions that merely have an allocator's name, like a `static void free(…)` of the
/// program.
///
/// The `malloc` of some allocators is a local symbol as well. In a position-independent static
/// program, glibc's `malloc` is local, but a reserved name (`__…`, which programs do not use) is at
/// the same address. Others are a `malloc` that was made hidden, and jemalloc's next to its
/// `mallctl`.
fn drop_namesakes(symbols: &mut Vec<Symbol>, user_functions: &[Entry]) {
    let is_reserved = |symbol: &Symbol| {
        let is_own = !symbol.is_local || symbol.is_hidden || !is_standard(symbol.name);
        is_own || symbol.name.starts_with('_')
    };
    let reserved = symbols.iter().filter(|symbol| is_reserved(symbol));
    let mut trusted: HashSet<u64> = reserved.map(|symbol| symbol.svma).collect();
    trusted.extend(nearest_to_mallctl(symbols, &trusted));
    let is_named_by_user =
        |symbol: &Symbol| user_functions.iter().any(|entry| entry.symbol == symbol.name);
    symbols.retain(|symbol| {
        trusted.contains(&symbol.svma) || !is_standard(symbol.name) || is_named_by_user(symbol)
    });
}

/// Addresses of jemalloc's standard functions if all of jemalloc is local. Of several functions
/// with one name, jemalloc's is the nearest to `mallctl`, since both are in the same source file.
fn nearest_to_mallctl(symbols: &[Symbol], trusted: &HashSet<u64>) -> Vec<u64> {
    let is_unique = |of: &&Symbol| of.is_local && JEMALLOC.unique_names.contains(&of.name);
    let Some(mallctl) = symbols.iter().find(is_unique) else { return Vec::new() };
    let names = JEMALLOC.entries.iter().map(|entry| entry.symbol).filter(|name| is_standard(name));
    let nearest = names.filter_map(|name| {
        let named = symbols.iter().filter(|symbol| symbol.name == name);
        let is_found = named.clone().any(|symbol| trusted.contains(&symbol.svma));
        named
            .map(|symbol| symbol.svma)
            .min_by_key(|at| at.abs_diff(mallctl.svma))
            .filter(|_| !is_found)
    });
    nearest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &'static str, svma: u64) -> Symbol {
        Symbol { name, is_default: true, is_local: true, is_hidden: false, svma, size: 16 }
    }

    fn left(mut symbols: Vec<Symbol>) -> Vec<(&'static str, u64)> {
        drop_namesakes(&mut symbols, &[]);
        symbols.iter().map(|symbol| (symbol.name, symbol.svma)).collect()
    }

    #[test]
    fn a_programs_own_static_functions_are_no_allocator() {
        assert_eq!(left(vec![symbol("free", 1), symbol("malloc", 2)]), []);
        let global = Symbol { is_local: false, ..symbol("free", 3) };
        assert_eq!(left(vec![symbol("free", 1), global]), [("free", 3)]);
    }

    #[test]
    fn local_functions_of_an_allocator_are_its_own() {
        let hidden = Symbol { is_hidden: true, ..symbol("malloc", 1) };
        assert_eq!(left(vec![hidden]), [("malloc", 1)]);
        let aliases = vec![symbol("malloc", 5), symbol("mi_malloc", 5), symbol("free", 6)];
        assert_eq!(left(aliases), [("malloc", 5), ("mi_malloc", 5)]);
        let jemalloc = vec![
            symbol("free", 10),
            symbol("malloc", 1000),
            symbol("free", 1100),
            symbol("mallctl", 1200),
        ];
        assert_eq!(left(jemalloc), [("malloc", 1000), ("free", 1100), ("mallctl", 1200)]);
    }

    #[test]
    fn a_marker_symbol_alone_makes_no_allocator() {
        assert!(!is_whole(&JEMALLOC, &[symbol("mallctl", 1)]));
        assert!(!is_whole(&JEMALLOC, &[symbol("mallctl", 1), symbol("malloc", 2)]));
        assert!(!is_whole(&JEMALLOC, &[symbol("malloc", 1), symbol("free", 2)]));
        assert!(is_whole(&JEMALLOC, &[symbol("mallocx", 1), symbol("sdallocx", 2)]));
    }
}
