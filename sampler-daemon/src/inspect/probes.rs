//! Which functions of an allocator get a probe: one for each address, and none that goes through another one.
//!
//! A function is *through* another when its code calls or jumps to it, and that one is probed as well (`operator delete` → `free`,
//! `mi_realloc` → `mi_heap_realloc`): a probe on both would count the call twice. Through the linker's stubs the other one may
//! be another library's by then, which is probed just so.

use super::allocator::Function;
use super::calls::{self, Target};
use super::elf::{Elf, ElfError};
use super::family::{Entry, Family, is_operator};
use super::placement::{place, would_harm};
use super::symbols::Symbol;
use sampler_common::wire::Role;
use std::collections::{BTreeMap, HashMap};

/// The functions to probe, and those whose code cannot be read, with the reason.
#[derive(Debug, Default)]
pub(super) struct Probes {
    pub(super) functions: Vec<Function>,
    pub(super) skipped: Vec<String>,
}

/// A function with all its names.
struct Candidate<'s> {
    entry: Entry,
    symbol: &'s Symbol,
    names: Vec<String>,
}

impl Probes {
    /// Of these definitions, as the `entries` have them, the most usual name first. `division`: the entries
    /// leave out what goes through another function, and the code need not be asked. `family`: whose functions these are, with what
    /// stands before its names.
    pub(super) fn of(
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
            // C++'s operators have their names whatever the allocator's are.
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

/// What the code of a file says.
struct Code<'e, 'f> {
    elf: &'e Elf<'f>,
    entries: &'e [Entry],
    /// Names of imported functions by the place of their address.
    imports: HashMap<u64, &'static str>,
    /// Where functions are that an `operator new` of its own calls.
    behind_new: Vec<u64>,
    /// Whether an `operator new` may be somebody else's.
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

    /// Addresses of the candidates that go through another one, or are somebody else's.
    fn through(&self, candidates: &BTreeMap<u64, Candidate<'_>>) -> Vec<u64> {
        let mut through = Vec::new();
        for (svma, candidate) in candidates {
            let targets = self.targets(candidate.symbol);
            let kind = kind(candidate.entry.role);
            let decisive = match kind {
                // To look up a block twice harms nothing, and to miss one that a shortcut frees does.
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

    /// An `operator new` in a program may be the program's own, and call malloc by a way that cannot be seen.
    fn is_foreign(&self, candidate: &Candidate<'_>, targets: &[Target]) -> bool {
        let is_only_operator = candidate.names.iter().all(|name| is_operator(name));
        let known = targets.iter().any(
            |target| matches!(target, Target::Code(address) if self.behind_new.contains(address)),
        );
        self.is_shared && is_only_operator && !known
    }

    /// Where a function goes whatever happens: as its only work, or into another library, which has the allocator.
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

    /// Where a function goes, stubs followed.
    fn targets(&self, symbol: &Symbol) -> Vec<Target> {
        // What cannot be read cannot be placed either, and that is said then.
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

/// Functions of one kind count the same thing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allocates,
    Frees,
}

fn kind(role: Role) -> Kind {
    if role == Role::Free { Kind::Frees } else { Kind::Allocates }
}
