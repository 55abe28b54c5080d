//! What a mapped file means for allocation: an allocator we know, one we do not, or nothing.

use super::allocator::Function;
use super::elf::{Elf, ElfError};
use super::glibc;
use super::symbols::Symbol;
use std::fs::File;
use std::io;

/// Allocators under names of their own, as programs carry them in without replacing `malloc`.
const PRIVATE: &[(&str, &str)] = &[
    ("je_malloc", "jemalloc"),
    ("_rjem_malloc", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("_mi_malloc_generic", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("scalable_malloc", "tbbmalloc"),
    ("rpmalloc", "rpmalloc"),
    ("sn_malloc", "snmalloc"),
];

/// What a file of which code is mapped contains.
#[derive(Debug)]
pub(super) enum Contents {
    /// glibc's allocator: its build id, what to probe, and what could not be placed.
    Glibc { build_id: String, functions: Vec<Function>, skipped: Vec<String> },
    /// `malloc` and `free` that are not glibc's; the second is its name, if we can tell.
    Unknown(Option<&'static str>),
    /// An allocator under a name of its own.
    Private { symbol: &'static str, name: &'static str },
    /// A static program whose symbols have been stripped.
    StrippedStatic,
    /// A static program with symbols, and no `malloc` among them (Go, for example).
    StaticWithout,
    /// It looks like ELF but makes no sense, or not to us.
    Unreadable(String),
    /// Nothing that allocates.
    Nothing,
}

impl Contents {
    /// Reads the file.
    ///
    /// # Errors
    /// Only if reading fails; what is read and makes no sense is [`Contents::Unreadable`].
    pub(super) fn read(file: &File) -> io::Result<Contents> {
        match Contents::of(file) {
            Ok(contents) => Ok(contents),
            Err(ElfError::NotElf) => Ok(Contents::Nothing),
            Err(ElfError::Read(error)) => Err(error),
            Err(error) => Ok(Contents::Unreadable(error.to_string())),
        }
    }

    fn of(file: &File) -> Result<Contents, ElfError> {
        let elf = Elf::read(file)?;
        // The loader's own malloc serves only the loader, until libc's takes over.
        if elf.soname.starts_with("ld-linux") {
            return Ok(Contents::Nothing);
        }
        let names: Vec<&str> =
            glibc::names().chain(PRIVATE.iter().map(|(symbol, _)| *symbol)).collect();
        let symbols = elf.dynamic_functions(&names)?;
        let contents = Contents::from_symbols(&elf, &symbols, elf.soname == "libc.so.6");
        if !matches!(contents, Contents::Nothing) || !elf.is_executable {
            return Ok(contents);
        }
        let is_static = !elf.has_interpreter;
        let symbols = elf.static_functions(&names)?;
        Ok(match Contents::from_symbols(&elf, &symbols, is_static) {
            Contents::Nothing if is_static && !elf.has_static_symbols() => Contents::StrippedStatic,
            Contents::Nothing if is_static => Contents::StaticWithout,
            // A program's `malloc` that is not exported is private to it, whatever it is.
            contents => contents,
        })
    }

    fn from_symbols(elf: &Elf<'_>, symbols: &[Symbol], may_be_glibc: bool) -> Contents {
        let defines = |name: &str| symbols.iter().any(|symbol| symbol.name == name);
        if may_be_glibc && glibc::is_defined_by(symbols) {
            let (functions, skipped) = glibc::functions(elf, symbols);
            return Contents::Glibc { build_id: elf.build_id.clone(), functions, skipped };
        }
        let private = PRIVATE.iter().find(|(symbol, _)| defines(symbol));
        if defines("malloc") && defines("free") {
            let musl = elf.soname == "libc.so" || elf.soname.starts_with("libc.musl");
            return Contents::Unknown(match private {
                _ if musl => Some("musl"),
                Some((_, name)) => Some(name),
                None => None,
            });
        }
        match private {
            Some(&(symbol, name)) => Contents::Private { symbol, name },
            None => Contents::Nothing,
        }
    }

    /// What cannot be seen because of this file, one line each.
    pub(super) fn blind(&self, path: &str) -> Vec<String> {
        let unseen = "allocations that it serves are not seen";
        match self {
            Contents::Glibc { skipped, .. } => {
                skipped.iter().map(|why| format!("{path}: {why}: not probed")).collect()
            }
            Contents::Unknown(name) => {
                let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
                vec![format!("{path}: its malloc{name} is not an allocator we know yet: {unseen}")]
            }
            Contents::Private { symbol, name } => {
                vec![format!("{path}: contains {name} ({symbol}): {unseen}")]
            }
            Contents::StrippedStatic => {
                vec![format!("{path}: static and stripped, its malloc cannot be found: {unseen}")]
            }
            Contents::StaticWithout => {
                vec![format!("{path}: static and without malloc: what it allocates is not seen")]
            }
            Contents::Unreadable(why) => vec![format!("{path}: {why}: not searched")],
            Contents::Nothing => Vec::new(),
        }
    }
}
