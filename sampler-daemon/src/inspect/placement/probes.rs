//! Which functions of an allocator get a probe: one function for each address, and no function that
//! goes through another one.
//!
//! A function goes *through* another one if its code calls or jumps to a function that is probed
//! too (`operator delete` → `free`, `mi_realloc` → `mi_heap_realloc`). A probe on both would count
//! the call twice. A call through the linker's stub may reach another library at run time. That
//! library's function is probed as well.

use super::{place, would_harm};
use crate::inspect::allocator::Function;
use crate::inspect::allocator::family::{Entry, Family, is_operator};
use crate::inspect::code::calls::{self, Target};
use crate::inspect::elf::symbols::Symbol;
use crate::inspect::elf::{Elf, ElfError};
use sampler_common::wire::Role;
use std::collections::{BTreeMap, HashMap};

/// The functions to probe, and the functions whose code cannot be read, with the reason.
#[derive(Debug, Default)]
pub(in crate::inspect) struct Probes {
    pub(in crate::inspect) functions: Vec<Function>,
    pub(in crate::inspect) skipped: Vec<String>,
}

/// A function with all its names.
struct Candidate<'s> {
    entry: Entry,
    symbol: &'s Symbol,
    names: Vec<String>,
}

impl Probes {
    /// Chooses from these definitions by the `entries`, the most usual name first. `division`: the
    /// entries already leave out functions that go through another one, so the code is not
    /// searched. `family`: the family of these functions, and the prefix of its names.
    pub(in crate::inspect) fn of(
        elf: &Elf<'_>,
        symbols: &[Symbol],
        entries: &[Entry],
        division: bool,
        family: Option<(&Family, &str)>,
    ) -> Result<Probes, ElfError> {
        let prefix = family.map_or("", |(_, prefix)| prefix);
        let mut candidates = candidates(symbols, entries, prefix);
        if !division {
            let code = Code::new(elf, symbols, entries, family)?;
            let through = code.through(&candidates);
            candidates.retain(|svma, _| !through.contains(svma));
        }
        let mut probes = Probes::default();
        for candidate in candidates.into_values() {
            let name = candidate.names.first().cloned().unwrap_or_default();
            match function(elf, candidate) {
                Ok(function) => probes.functions.push(function),
                Err(error) => probes.skipped.push(format!("{name}: {error}")),
            }
        }
        probes.functions.sort_by_key(|function| function.offset);
        Ok(probes)
    }
}

fn candidates<'s>(
    symbols: &'s [Symbol],
    entries: &[Entry],
    prefix: &str,
) -> BTreeMap<u64, Candidate<'s>> {
    let mut candidates: BTreeMap<u64, Candidate<'s>> = BTreeMap::new();
    for entry in entries {
        for symbol in symbols.iter().filter(|symbol| symbol.name == entry.symbol) {
            let new = || Candidate { entry: *entry, symbol, names: Vec::new() };
            let known = candidates.entry(symbol.svma).or_insert_with(new);
            // C++'s operators have no prefix, whatever the allocator's prefix is.
            let prefix = if is_operator(entry.symbol) { "" } else { prefix };
            let name = format!("{prefix}{}", entry.symbol);
            if !known.names.contains(&name) {
                known.names.push(name);
            }
        }
    }
    candidates
}

fn function(elf: &Elf<'_>, candidate: Candidate<'_>) -> Result<Function, ElfError> {
    let Candidate { entry, symbol, names } = candidate;
    let code = elf.code(symbol)?;
    let placement = place(&code, symbol.svma, entry.role, entry.shape);
    if would_harm(&code, &placement) {
        return Err(ElfError::Harmful);
    }
    Ok(Function {
        symbols: names,
        role: entry.role,
        shape: entry.shape,
        offset: elf.file_offset(symbol.svma)?,
        placement,
    })
}

/// The code of a file, and what it may call.
struct Code<'e, 'f> {
    elf: &'e Elf<'f>,
    entries: &'e [Entry],
    /// Names of imported functions by the slot of their address.
    imports: HashMap<u64, &'static str>,
    /// Addresses of the functions that the family's own `operator new` calls.
    behind_new: Vec<u64>,
    /// Whether an `operator new` may belong to the program or another library.
    is_shared: bool,
}

impl<'e, 'f> Code<'e, 'f> {
    fn new(
        elf: &'e Elf<'f>,
        symbols: &[Symbol],
        entries: &'e [Entry],
        family: Option<(&Family, &str)>,
    ) -> Result<Code<'e, 'f>, ElfError> {
        let names: Vec<&'static str> = entries.iter().map(|entry| entry.symbol).collect();
        let behind = family.map_or(&[][..], |(family, _)| family.behind_new);
        let is_behind = |symbol: &&Symbol| behind.contains(&symbol.name);
        let behind_new = symbols.iter().filter(is_behind).map(|symbol| symbol.svma).collect();
        let prefix = family.map_or("", |(_, prefix)| prefix);
        let imports = elf.imports(prefix, &names)?;
        let is_shared = elf.is_executable || !prefix.is_empty();
        Ok(Code { elf, entries, imports, behind_new, is_shared })
    }

    /// Addresses of the candidates that go through another one, or that belong to the program or
    /// another library.
    fn through(&self, candidates: &BTreeMap<u64, Candidate<'_>>) -> Vec<u64> {
        let mut through = Vec::new();
        for (svma, candidate) in candidates {
            let targets = self.targets(candidate.symbol);
            let kind = kind(candidate.entry.role);
            let decisive = match kind {
                // Looking up a block twice does no harm, but a probe missing where a shortcut frees
                // a block does.
                Kind::Frees => self.certain(candidate.symbol, &targets, candidates),
                Kind::Allocates => targets.clone(),
            };
            let goes = decisive.iter().any(|target| {
                let other = match target {
                    Target::Code(at) => candidates.get(at).map(|other| other.entry.role),
                    Target::Slot(at) => self.imported(*at),
                };
                *target != Target::Code(*svma) && other.is_some_and(|role| self::kind(role) == kind)
            });
            if goes || self.is_foreign(candidate, &targets) {
                through.push(*svma);
            }
        }
        through
    }

    /// Whether an `operator new` may be the program's own, and may call malloc in a way that cannot
    /// be seen.
    fn is_foreign(&self, candidate: &Candidate<'_>, targets: &[Target]) -> bool {
        let is_only_operator = candidate.names.iter().all(|name| is_operator(name));
        let known = targets.iter().any(
            |target| matches!(target, Target::Code(address) if self.behind_new.contains(address)),
        );
        self.is_shared && is_only_operator && !known
    }

    /// Where a function goes on every call: a jump that is its only work, or a call into another
    /// library, which has the allocator.
    fn certain(
        &self,
        symbol: &Symbol,
        targets: &[Target],
        candidates: &BTreeMap<u64, Candidate<'_>>,
    ) -> Vec<Target> {
        let code = self.elf.code(symbol).unwrap_or_default();
        let thunk = calls::thunk(&code, symbol.svma).map(|target| self.behind(target));
        let is_defined = |name: &str| {
            candidates.values().any(|candidate| candidate.names.iter().any(|known| known == name))
        };
        let is_elsewhere = |target: &&Target| match target {
            Target::Slot(slot) => self.imports.get(slot).is_some_and(|name| !is_defined(name)),
            Target::Code(_) => false,
        };
        targets.iter().filter(is_elsewhere).copied().chain(thunk).collect()
    }

    fn imported(&self, slot: u64) -> Option<Role> {
        let name = self.imports.get(&slot)?;
        self.entries.iter().find(|entry| entry.symbol == *name).map(|entry| entry.role)
    }

    /// The targets of a function's calls and jumps, with stubs resolved.
    fn targets(&self, symbol: &Symbol) -> Vec<Target> {
        // Code that cannot be read cannot be placed either. Placing the probe reports that.
        let Ok(code) = self.elf.code(symbol) else { return Vec::new() };
        let targets = calls::targets(&code, symbol.svma, symbol.size != 0);
        targets.into_iter().map(|target| self.behind(target)).collect()
    }

    fn behind(&self, target: Target) -> Target {
        let Target::Code(address) = target else { return target };
        let stub = self.elf.code_at(address, calls::STUB_BYTES);
        match stub.ok().and_then(|code| calls::stub(&code, address)) {
            Some(slot) if self.imports.contains_key(&slot) => Target::Slot(slot),
            _ => target,
        }
    }
}

/// What a function counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allocates,
    Frees,
}

fn kind(role: Role) -> Kind {
    if role == Role::Free { Kind::Frees } else { Kind::Allocates }
}
