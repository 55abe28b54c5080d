//! What a mapped file means for allocation: allocators that we know, one that we do not, or nothing.

use super::allocator::Function;
use super::discovery::{MAY_MOVE, WOULD_KILL};
use super::elf::{Elf, ElfError};
use super::families::{glibc, musl, tbbmalloc};
use super::family::{self, Entry, FAMILIES, Family, STANDARD};
use super::moving::{self, Executables};
use super::probes::Probes;
use super::spec::Spec;
use super::symbols::Symbol;
use super::usdt::Usdt;
use std::collections::HashSet;
use std::fs::File;
use std::io;

/// What a file of which code is mapped contains.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Names of its allocators: `jemalloc`, `glibc and mimalloc`; empty if it has none.
    pub(super) name: String,
    /// GNU build id, lower-case hex, empty if it has none.
    pub(super) build_id: String,
    /// What to probe.
    pub(super) functions: Vec<Function>,
    /// Whether it can be started as a program.
    pub(super) is_program: bool,
    /// Whether other files of a process may bind to its `malloc`.
    pub(super) exports_malloc: bool,
    /// What could not be placed.
    skipped: Vec<String>,
    /// What of it is not seen.
    gap: Option<Gap>,
}

/// What of a file is not seen.
#[derive(Debug)]
enum Gap {
    /// `malloc` and `free` of nobody that we know.
    Unknown,
    /// An allocator with this mark, of which no function was found.
    Hidden { mark: &'static str, name: &'static str },
    /// A static program whose symbols have been stripped.
    StrippedStatic,
    /// A static program with symbols, and no `malloc` among them (Go, for example).
    StaticWithout,
    /// A program that may move its code, by the code at this address: it would be killed by what is probed in it.
    Moves(u64),
    /// A program, where these are not to be probed.
    Program,
    /// It looks like ELF but makes no sense, or not to us.
    Unreadable(String),
}

impl Contents {
    /// Reads the file, which is at `path` in the process.
    ///
    /// # Errors
    /// Only if reading fails; what is read and makes no sense is a line in [`Contents::blind`].
    pub(super) fn read(
        file: &File,
        path: &str,
        spec: &Spec,
        executables: Executables,
    ) -> io::Result<Contents> {
        match Contents::of(file, path, spec, executables) {
            Ok(contents) => Ok(contents),
            Err(ElfError::NotElf) => Ok(Contents::default()),
            Err(ElfError::Read(error)) => Err(error),
            Err(error) => Ok(Contents {
                gap: Some(Gap::Unreadable(error.to_string())),
                ..Contents::default()
            }),
        }
    }

    fn of(
        file: &File,
        path: &str,
        spec: &Spec,
        executables: Executables,
    ) -> Result<Contents, ElfError> {
        let elf = Elf::read(file)?;
        // The loader's own malloc serves only the loader, until libc's takes over.
        if elf.soname.starts_with("ld-linux") {
            return Ok(Contents::default());
        }
        let told = spec.entries(path, &elf.soname);
        let names: HashSet<&'static str> = glibc::names()
            .chain(family::names())
            .chain(told.iter().map(|entry| entry.symbol))
            .collect();
        let names: Vec<&'static str> = names.into_iter().collect();
        let mut symbols = elf.dynamic_functions(&names)?;
        let mut contents = Contents {
            build_id: elf.build_id.clone(),
            is_program: elf.is_executable,
            exports_malloc: defines(&symbols, "malloc"),
            ..Contents::default()
        };
        if elf.is_executable {
            let mut own = elf.static_functions(&names)?;
            drop_namesakes(&mut own, &told);
            own.retain(|symbol| !symbols.iter().any(|of| is_same(of, symbol)));
            symbols.extend(own);
        }
        contents.search(&elf, &symbols, path)?;
        contents.tell(&elf, &symbols, &told)?;
        let has_probes = || Usdt::read(file).is_ok_and(|usdt| !usdt.probes.is_empty());
        if elf.is_executable && (!contents.functions.is_empty() || has_probes()) {
            let left = match executables {
                Executables::Checked => moving::find(&elf)?.map(Gap::Moves),
                Executables::All => None,
                Executables::None => Some(Gap::Program),
            };
            contents.gap = left.or(contents.gap);
        }
        Ok(contents)
    }

    fn search(&mut self, elf: &Elf<'_>, symbols: &[Symbol], path: &str) -> Result<(), ElfError> {
        let is_program = elf.is_executable && !elf.has_interpreter;
        let mut families: Vec<&Family> =
            FAMILIES.iter().filter(|family| is_in(family, symbols)).collect();
        if families.is_empty() && is_musl(elf, path) && defines(symbols, "malloc") {
            families.push(&musl::MUSL);
        }
        let owner = families.iter().position(|family| owns_malloc(family, symbols));
        let is_glibc = elf.soname == "libc.so.6" && glibc::is_shared(symbols)
            || is_program && owner.is_none() && glibc::is_static(symbols);
        // Without a better one, the only allocator that is there.
        let owner = owner.or_else(|| (!is_glibc && !families.is_empty()).then_some(0));
        if is_glibc {
            self.add("glibc", Probes::of(elf, symbols, &glibc::entries(), true, None)?);
        }
        for (number, family) in families.iter().enumerate() {
            let mut entries = family.entries.to_vec();
            if owner == Some(number) {
                entries.splice(0..0, STANDARD.iter().copied());
            }
            let probes = Probes::of(elf, symbols, &entries, false, Some(family))?;
            self.add(family.name, probes);
        }
        if let (true, Some(family)) = (self.name.is_empty(), families.first()) {
            self.name = family.name.to_owned();
        }
        self.gap = match families.first() {
            _ if !self.functions.is_empty() => None,
            // It calls those of the other library.
            Some(family) if family.marks == tbbmalloc::PROXY.marks => None,
            Some(family) => {
                let mark = family.marks.iter().find(|mark| defines(symbols, mark));
                mark.map(|mark| Gap::Hidden { mark, name: family.name })
            }
            None if defines(symbols, "malloc") && defines(symbols, "free") => Some(Gap::Unknown),
            None if is_program && !elf.has_static_symbols() => Some(Gap::StrippedStatic),
            None if is_program => Some(Gap::StaticWithout),
            None => None,
        };
        Ok(())
    }

    fn add(&mut self, name: &str, probes: Probes) {
        if !probes.functions.is_empty() && !self.name.split(" and ").any(|known| known == name) {
            let and = if self.name.is_empty() { "" } else { " and " };
            self.name += &format!("{and}{name}");
        }
        for function in probes.functions {
            if !self.functions.iter().any(|known| known.offset == function.offset) {
                self.functions.push(function);
            }
        }
        self.skipped.extend(probes.skipped);
    }

    /// What the user says of this file stands above what we find in it.
    fn tell(&mut self, elf: &Elf<'_>, symbols: &[Symbol], told: &[Entry]) -> Result<(), ElfError> {
        let probes = Probes::of(elf, symbols, told, true, None)?;
        for entry in told.iter().filter(|entry| !defines(symbols, entry.symbol)) {
            self.skipped.push(format!("{} (--allocator-spec): no such function", entry.symbol));
        }
        let is_told = |of: &Function| probes.functions.iter().any(|told| told.offset == of.offset);
        self.functions.retain(|function| !is_told(function));
        if !probes.functions.is_empty() {
            self.gap = None;
        }
        self.add("--allocator-spec", probes);
        self.functions.sort_by_key(|function| function.offset);
        Ok(())
    }

    /// What cannot be seen because of this file, one line each.
    pub(super) fn blind(&self, path: &str) -> Vec<String> {
        let unseen = "allocations that it serves are not seen";
        let gap = self.gap.as_ref().map(|gap| match gap {
            Gap::Unknown => format!(
                "{path}: its malloc is not an allocator we know: {unseen} (--allocator-spec)"
            ),
            Gap::Hidden { mark, name } => format!("{path}: contains {name} ({mark}): {unseen}"),
            Gap::StrippedStatic => {
                format!("{path}: static and stripped, its malloc cannot be found: {unseen}")
            }
            Gap::StaticWithout => {
                format!("{path}: static and without malloc: what it allocates is not seen")
            }
            Gap::Moves(at) => format!("{path}{MAY_MOVE} (its code at {at:#x}){WOULD_KILL}"),
            Gap::Program => format!(
                "{path}: its allocator is in the executable: {unseen} (--probe-executables none)"
            ),
            Gap::Unreadable(why) => format!("{path}: {why}: not searched"),
        });
        let skipped = self.skipped.iter().map(|why| format!("{path}: {why}: not probed"));
        gap.into_iter().chain(skipped).collect()
    }
}

impl Contents {
    /// Whether nothing of it may be probed, since that could kill it.
    pub(super) fn is_left_alone(&self) -> bool {
        matches!(self.gap, Some(Gap::Moves(_) | Gap::Program))
    }

    /// What may be probed.
    pub(super) fn probed(&self) -> &[Function] {
        if self.is_left_alone() { &[] } else { &self.functions }
    }
}

fn defines(symbols: &[Symbol], name: &str) -> bool {
    symbols.iter().any(|symbol| symbol.name == name)
}

fn is_same(one: &Symbol, other: &Symbol) -> bool {
    one.name == other.name && one.svma == other.svma
}

fn is_in(family: &Family, symbols: &[Symbol]) -> bool {
    family.marks.iter().any(|mark| defines(symbols, mark))
}

/// The shared library exports none of its marks, and not everywhere has a soname.
fn is_musl(elf: &Elf<'_>, path: &str) -> bool {
    let name = match elf.soname.as_str() {
        "" => path.rsplit('/').next().unwrap_or_default(),
        soname => soname,
    };
    name == "libc.so" || name.starts_with("libc.musl") || name.starts_with("ld-musl")
}

/// Whether the file's `malloc` is the one of this family, of which it defines a mark.
fn owns_malloc(family: &Family, symbols: &[Symbol]) -> bool {
    let malloc = symbols.iter().find(|symbol| symbol.name == "malloc");
    let Some(malloc) = malloc else { return false };
    let is_entry = |symbol: &Symbol| family.entries.iter().any(|of| of.symbol == symbol.name);
    let is_alias = symbols.iter().any(|symbol| symbol.svma == malloc.svma && is_entry(symbol));
    let marks = family.marks;
    is_alias || marks == musl::MUSL.marks || marks == tbbmalloc::PROXY.marks
}

/// Leaves out functions that merely have such a name, like a `static void free(…)` of the program.
/// A position-independent static program has glibc's `malloc` as a local symbol as well, but then
/// a reserved name (`__…`, which programs do not use) is at the same address.
fn drop_namesakes(symbols: &mut Vec<Symbol>, told: &[Entry]) {
    let is_reserved = |symbol: &Symbol| !symbol.is_local || symbol.name.starts_with('_');
    let trusted: HashSet<u64> =
        symbols.iter().filter(|symbol| is_reserved(symbol)).map(|symbol| symbol.svma).collect();
    let is_standard = |symbol: &Symbol| STANDARD.iter().any(|entry| entry.symbol == symbol.name);
    let is_told = |symbol: &Symbol| told.iter().any(|entry| entry.symbol == symbol.name);
    symbols
        .retain(|symbol| trusted.contains(&symbol.svma) || !is_standard(symbol) || is_told(symbol));
}
