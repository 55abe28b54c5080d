//! What allocators a mapped file contains: known ones, an unknown one, or none.

use super::Function;
use super::definitions::{Definitions, defines, is_whole};
use super::family::{self, Entry, FAMILIES, Family, MESSAGES, STANDARD, is_operator};
use super::spec::Spec;
use crate::inspect::code::moving::{self, Executables};
use crate::inspect::discovery::{MAY_MOVE, WOULD_KILL};
use crate::inspect::elf::symbols::Symbol;
use crate::inspect::elf::{Elf, ElfError};
use crate::inspect::families::jemalloc::{BEHIND_INLINED, JEMALLOC};
use crate::inspect::families::{glibc, musl, tbbmalloc};
use crate::inspect::placement::probes::Probes;
use crate::inspect::usdt::Usdt;
use sampler_common::note::BlindSpot;
use std::collections::HashSet;
use std::fs::File;
use std::io;

/// The allocators in a file of which code is mapped.
#[derive(Debug, Default)]
pub(in crate::inspect) struct Contents {
    /// Names of the file's allocators: `jemalloc`, `glibc and mimalloc`; empty if it has none.
    pub(in crate::inspect) name: String,
    /// GNU build id, lower-case hex, empty if the file has none.
    pub(in crate::inspect) build_id: String,
    /// The functions to probe.
    pub(in crate::inspect) functions: Vec<Function>,
    /// Whether the file can be started as a program.
    pub(in crate::inspect) is_program: bool,
    /// Whether other files of a process may bind to its `malloc`.
    pub(in crate::inspect) exports_malloc: bool,
    /// Whether the file is a program that Go's linker made.
    pub(in crate::inspect) is_go_program: bool,
    /// Functions for which no probe could be placed, with the reason.
    skipped: Vec<String>,
    /// Why allocations of the file are not seen, if so.
    gap: Option<Gap>,
    /// Allocators in the file whose functions have no symbols left.
    unnamed: Vec<&'static str>,
    /// Functions that are inlined into their callers.
    inlined: Vec<String>,
}

/// Why allocations of a file are not seen.
#[derive(Debug)]
enum Gap {
    /// `malloc` and `free` of no known allocator.
    Unknown,
    /// An allocator of which only this name was found, and no function to probe.
    Hidden { unique_name: &'static str, name: &'static str },
    /// A static program whose symbols have been stripped.
    StrippedStatic,
    /// A static program with symbols, but without a `malloc` symbol (Go, for example).
    StaticWithout,
    /// A program that may move its code, by the code at this address. A probe in it would kill it.
    Moves(u64),
    /// A program, and the user excluded executables from probing.
    Program,
    /// An ELF file that is malformed or not supported.
    Unreadable(String),
}

impl Contents {
    /// Reads the file, which is at `path` in the process.
    ///
    /// # Errors
    /// If reading fails. A file that was read but is malformed is an entry of
    /// [`Contents::blind_spots`], not an error.
    pub(in crate::inspect) fn read(
        file: &File,
        path: &str,
        spec: &Spec,
        executables: Executables,
    ) -> io::Result<Contents> {
        match Contents::of(file, path, spec, executables) {
            Ok(contents) => Ok(contents),
            Err(ElfError::NotElf) => Ok(Contents::default()),
            Err(ElfError::Read(error)) => Err(error),
            Err(error) => Ok(Contents::unreadable(&error)),
        }
    }

    /// The contents of a file that cannot be read.
    pub(in crate::inspect) fn unreadable(error: &impl ToString) -> Contents {
        Contents { gap: Some(Gap::Unreadable(error.to_string())), ..Contents::default() }
    }

    fn of(
        file: &File,
        path: &str,
        spec: &Spec,
        executables: Executables,
    ) -> Result<Contents, ElfError> {
        let elf = Elf::read(file)?;
        // The loader's own malloc serves only the loader, until libc's malloc takes over.
        if elf.soname.starts_with("ld-linux") {
            return Ok(Contents::default());
        }
        let user_functions = spec.entries(path, &elf.soname);
        let names: HashSet<&'static str> = glibc::names()
            .chain(family::names())
            .chain(user_functions.iter().map(|entry| entry.symbol))
            .collect();
        let names: Vec<&'static str> = names.into_iter().collect();
        let definitions = Definitions::read(&elf, &names, &user_functions)?;
        let mut contents = Contents {
            build_id: elf.build_id.clone(),
            is_program: elf.is_executable,
            exports_malloc: definitions.exports_malloc,
            is_go_program: elf.is_go && (elf.is_executable || elf.has_interpreter),
            ..Contents::default()
        };
        contents.search(&elf, &definitions, path)?;
        contents.note_unnamed(&elf)?;
        contents.add_described(&elf, &definitions.plain, &user_functions)?;
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
        // If no allocator clearly owns `malloc`, the first one does, unless the file is glibc.
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
            // The proxy calls the functions of the other library.
            Some(family) if family.unique_names == tbbmalloc::PROXY.unique_names => None,
            Some(family) => {
                let unique_name =
                    family.unique_names.iter().find(|unique_name| defines(symbols, unique_name));
                unique_name.map(|unique_name| Gap::Hidden { unique_name, name: family.name })
            }
            None if defines(symbols, "malloc") && defines(symbols, "free") => Some(Gap::Unknown),
            None if is_program && !elf.has_static_symbols() => Some(Gap::StrippedStatic),
            None if is_program => Some(Gap::StaticWithout),
            None => None,
        };
        Ok(())
    }

    /// Adds allocators whose names have a prefix. `has_owner`: C++'s operators belong to another
    /// allocator.
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

    /// Adds to `unnamed` the allocators that only their messages identify.
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

    /// Adds the functions that the user described. Such a description replaces what the search
    /// found at the same offset.
    fn add_described(
        &mut self,
        elf: &Elf<'_>,
        symbols: &[Symbol],
        user_functions: &[Entry],
    ) -> Result<(), ElfError> {
        let probes = Probes::of(elf, symbols, user_functions, true, None)?;
        for entry in user_functions.iter().filter(|entry| !defines(symbols, entry.symbol)) {
            self.skipped.push(format!("{} (--allocator-spec): no such function", entry.symbol));
        }
        let is_named_by_user =
            |of: &Function| probes.functions.iter().any(|named| named.offset == of.offset);
        self.functions.retain(|function| !is_named_by_user(function));
        if !probes.functions.is_empty() {
            self.gap = None;
        }
        self.add("--allocator-spec", probes);
        self.functions.sort_by_key(|function| function.offset);
        Ok(())
    }

    /// The allocations that are not seen because of this file at `path`.
    pub(in crate::inspect) fn blind_spots(&self, path: &str) -> Vec<BlindSpot> {
        let unseen = "allocations that it serves are not seen";
        let gap = self.gap.as_ref().map(|gap| match gap {
            Gap::Unknown => {
                format!("its malloc is not an allocator we know: {unseen} (--allocator-spec)")
            }
            Gap::Hidden { unique_name, name } => {
                format!("contains {name} ({unique_name}): {unseen}")
            }
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
        all.map(|why| BlindSpot::at(path, why)).collect()
    }
}

impl Contents {
    /// Whether some allocations of the file are not seen.
    pub(in crate::inspect) fn has_unseen_allocations(&self) -> bool {
        let Contents { gap, unnamed, inlined, skipped, .. } = self;
        gap.is_some() || !unnamed.is_empty() || !inlined.is_empty() || !skipped.is_empty()
    }

    /// Whether nothing in the file may be probed, since a probe could kill the program or the user
    /// excluded it.
    pub(in crate::inspect) fn is_left_alone(&self) -> bool {
        matches!(self.gap, Some(Gap::Moves(_) | Gap::Program))
    }

    /// The functions that may be probed.
    pub(in crate::inspect) fn probed(&self) -> &[Function] {
        if self.is_left_alone() { &[] } else { &self.functions }
    }
}

/// Whether jemalloc's `malloc` is inlined: other functions of the file call `malloc_default`, which
/// is behind `malloc`, and none calls `malloc`.
fn is_inlined(elf: &Elf<'_>, prefix: &str) -> Result<bool, ElfError> {
    let called = |name| Ok::<_, ElfError>(!elf.imports_behind(prefix, &[name])?.is_empty());
    Ok(called("malloc_default")? && !called("malloc")?)
}

fn is_in(family: &Family, symbols: &[Symbol]) -> bool {
    family.unique_names.iter().any(|unique_name| defines(symbols, unique_name))
}

/// Whether the file is musl. The shared library exports none of its unique names, and has a soname only on
/// some systems.
fn is_musl(elf: &Elf<'_>, path: &str) -> bool {
    let name = match elf.soname.as_str() {
        "" => path.rsplit('/').next().unwrap_or_default(),
        soname => soname,
    };
    name == "libc.so" || name.starts_with("libc.musl") || name.starts_with("ld-musl")
}

/// Whether the file's `malloc` belongs to this family, of which the file defines a unique name.
fn owns_malloc(family: &Family, symbols: &[Symbol]) -> bool {
    let malloc = symbols.iter().find(|symbol| symbol.name == "malloc");
    let Some(malloc) = malloc else { return false };
    let is_entry = |symbol: &Symbol| family.entries.iter().any(|of| of.symbol == symbol.name);
    let is_alias = symbols.iter().any(|symbol| symbol.svma == malloc.svma && is_entry(symbol));
    let unique_names = family.unique_names;
    is_alias
        || unique_names == musl::MUSL.unique_names
        || unique_names == tbbmalloc::PROXY.unique_names
}
