//! What a mapped file means for allocation: allocators that we know, one that we do not, or nothing.

use super::allocator::Function;
use super::definitions::{Definitions, defines, is_whole};
use super::discovery::{MAY_MOVE, WOULD_KILL};
use super::elf::{Elf, ElfError};
use super::families::jemalloc::{BEHIND_INLINED, JEMALLOC};
use super::families::{glibc, musl, tbbmalloc};
use super::family::{self, Entry, FAMILIES, Family, MESSAGES, STANDARD, is_operator};
use super::moving::{self, Executables};
use super::probes::Probes;
use super::spec::Spec;
use super::symbols::Symbol;
use super::usdt::Usdt;
use sampler_common::note::Blind;
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
    /// Whether it is a program that Go's linker made.
    pub(super) is_go_program: bool,
    /// What could not be placed.
    skipped: Vec<String>,
    /// What of it is not seen.
    gap: Option<Gap>,
    /// Allocators in it of which no symbol is left.
    unnamed: Vec<&'static str>,
    /// Functions that are inlined into their callers.
    inlined: Vec<String>,
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
        let definitions = Definitions::read(&elf, &names, &told)?;
        let mut contents = Contents {
            build_id: elf.build_id.clone(),
            is_program: elf.is_executable,
            exports_malloc: definitions.exports_malloc,
            is_go_program: elf.is_go && (elf.is_executable || elf.has_interpreter),
            ..Contents::default()
        };
        contents.search(&elf, &definitions, path)?;
        contents.note_unnamed(&elf)?;
        contents.add_described(&elf, &definitions.plain, &told)?;
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

    fn search(
        &mut self,
        elf: &Elf<'_>,
        definitions: &Definitions,
        path: &str,
    ) -> Result<(), ElfError> {
        let symbols = &definitions.plain;
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
            let probes = Probes::of(elf, symbols, &entries, false, Some((family, "")))?;
            self.add(family.name, probes);
        }
        self.search_prefixed(elf, definitions, is_glibc || owner.is_some())?;
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

    /// Adds allocators whose names have a prefix; `has_owner`: C++'s operators are another one's.
    fn search_prefixed(
        &mut self,
        elf: &Elf<'_>,
        definitions: &Definitions,
        has_owner: bool,
    ) -> Result<(), ElfError> {
        for (prefix, symbols) in &definitions.prefixed {
            for family in FAMILIES.iter().filter(|family| is_whole(family, symbols)) {
                let (mut entries, mut symbols) = (family.entries.to_vec(), symbols.clone());
                if family.name == JEMALLOC.name && is_inlined(elf, prefix)? {
                    entries.retain(|entry| entry.symbol != "malloc");
                    entries.extend(BEHIND_INLINED);
                    self.inlined.push(format!("{prefix}malloc"));
                }
                if !has_owner {
                    entries.extend(STANDARD.iter().filter(|of| is_operator(of.symbol)));
                    let is_with =
                        |of: &&Symbol| is_operator(of.name) || family.behind_new.contains(&of.name);
                    symbols.extend(definitions.plain.iter().filter(is_with).cloned());
                }
                let probes = Probes::of(elf, &symbols, &entries, false, Some((family, prefix)))?;
                self.add(family.name, probes);
            }
        }
        Ok(())
    }

    /// Notes allocators that only their messages tell of.
    fn note_unnamed(&mut self, elf: &Elf<'_>) -> Result<(), ElfError> {
        let texts: Vec<&str> = MESSAGES.iter().map(|(text, _)| *text).collect();
        let found = elf.strings_begin(&texts)?;
        for ((_, name), _) in MESSAGES.iter().zip(found).filter(|(_, is_there)| *is_there) {
            if !self.has(name) && !self.unnamed.contains(name) {
                self.unnamed.push(name);
            }
        }
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.name.split(" and ").any(|known| known == name)
    }

    fn add(&mut self, name: &str, probes: Probes) {
        if !probes.functions.is_empty() && !self.has(name) {
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
    fn add_described(
        &mut self,
        elf: &Elf<'_>,
        symbols: &[Symbol],
        told: &[Entry],
    ) -> Result<(), ElfError> {
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

    /// What cannot be seen because of this file at `path`.
    pub(super) fn blind(&self, path: &str) -> Vec<Blind> {
        let unseen = "allocations that it serves are not seen";
        let gap = self.gap.as_ref().map(|gap| match gap {
            Gap::Unknown => {
                format!("its malloc is not an allocator we know: {unseen} (--allocator-spec)")
            }
            Gap::Hidden { mark, name } => format!("contains {name} ({mark}): {unseen}"),
            Gap::StrippedStatic => {
                format!("static and stripped, its malloc cannot be found: {unseen}")
            }
            Gap::StaticWithout => {
                "static and without malloc: what it allocates is not seen".to_owned()
            }
            Gap::Moves(at) => format!("{MAY_MOVE} (its code at {at:#x}){WOULD_KILL}"),
            Gap::Program => {
                format!("its allocator is in the executable: {unseen} (--probe-executables none)")
            }
            Gap::Unreadable(why) => format!("{why}: not searched"),
        });
        let unnamed = self.unnamed.iter().map(|name| {
            format!("contains {name}, its functions have no symbols: {unseen} (use a file that is not stripped)")
        });
        let inlined = self.inlined.iter().map(|name| {
            format!("{name} is inlined into its callers: small blocks (to 14 KiB) are seen in part only, and their frees")
        });
        let skipped = self.skipped.iter().map(|why| format!("{why}: not probed"));
        let all = gap.into_iter().chain(unnamed).chain(inlined).chain(skipped);
        all.map(|why| Blind::at(path, why)).collect()
    }
}

impl Contents {
    /// Whether what it allocates is not all seen.
    pub(super) fn has_unseen_allocations(&self) -> bool {
        let Contents { gap, unnamed, inlined, skipped, .. } = self;
        gap.is_some() || !unnamed.is_empty() || !inlined.is_empty() || !skipped.is_empty()
    }

    /// Whether nothing of it may be probed, since that could kill it.
    pub(super) fn is_left_alone(&self) -> bool {
        matches!(self.gap, Some(Gap::Moves(_) | Gap::Program))
    }

    /// What may be probed.
    pub(super) fn probed(&self) -> &[Function] {
        if self.is_left_alone() { &[] } else { &self.functions }
    }
}

/// Whether other functions of the file call what is behind jemalloc's `malloc`, and none calls that.
fn is_inlined(elf: &Elf<'_>, prefix: &str) -> Result<bool, ElfError> {
    let called = |name| Ok::<_, ElfError>(!elf.imports_behind(prefix, &[name])?.is_empty());
    Ok(called("malloc_default")? && !called("malloc")?)
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
