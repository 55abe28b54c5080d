//! Interpreters of CPython: those in `PATH`, and those that `cargo xtask test` has unpacked from
//! Debian's packages, each with a C library of its own.

use crate::build;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Versions whose frames are shown.
pub const KNOWN: &[&str] = &["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// Versions that `cargo xtask test` unpacks where Debian's archive answers.
const UNPACKED: &[&str] = &["3.9", "3.11", "3.13", "3.14"];

/// An interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// Major and minor version.
    pub version: String,
    /// The program `pythonVERSION`.
    pub program: PathBuf,
    /// The folder with the packages that the interpreter was unpacked from.
    root: Option<PathBuf>,
}

impl Python {
    /// Whether the interpreter was unpacked from another suite's packages.
    pub fn is_unpacked(&self) -> bool {
        self.root.is_some()
    }

    /// A file of the packages that the interpreter was unpacked from.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        self.root.as_ref().map(|root| root.join(name)).filter(|path| path.exists())
    }

    /// A command that starts the interpreter.
    pub fn command(&self) -> Result<Command> {
        self.command_of(&self.program)
    }

    /// A command that starts another interpreter in the place of this one.
    pub fn command_of(&self, program: &Path) -> Result<Command> {
        let Some(root) = &self.root else {
            let home = self.program.parent().and_then(Path::parent).context("a folder")?;
            let mut command = Command::new(program);
            command.env("PYTHONHOME", home);
            return Ok(command);
        };
        let existing = |names: &[&str]| {
            let paths = names.iter().map(|name| root.join(name)).filter(|path| path.exists());
            paths.collect::<Vec<_>>()
        };
        // glibc 2.31 links its loader by an absolute path.
        let loader = existing(&[
            "lib64/ld-linux-x86-64.so.2",
            "usr/lib64/ld-linux-x86-64.so.2",
            "lib/x86_64-linux-gnu/ld-2.31.so",
        ]);
        let loader = loader.first().with_context(|| format!("no loader in {}", root.display()))?;
        let libraries = existing(&["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]);
        let libraries = std::env::join_paths(libraries).context("name the libraries")?;
        let mut command = Command::new(loader);
        command.arg("--library-path").arg(libraries).arg(program);
        command.env("PYTHONHOME", root.join("usr")).env("PYTHONDONTWRITEBYTECODE", "1");
        Ok(command)
    }
}

/// All interpreters of known versions. At least the distribution's must be there. Prints which
/// versions are tested, and which are not.
pub fn known() -> Result<Vec<Python>> {
    let mut found = in_path()?;
    ensure!(!found.is_empty(), "no python{KNOWN:?} in PATH: install python3");
    let (there, missing): (Vec<_>, Vec<_>) = UNPACKED
        .iter()
        .map(|version| (version, unpacked(version)))
        .partition(|(_, of)| of.is_some());
    found.extend(there.into_iter().filter_map(|(_, python)| python));
    for python in &found {
        eprintln!("NOTICE: tested: {} ({})", python.version, python.program.display());
    }
    for (version, _) in missing {
        eprintln!("NOTICE: NOT TESTED: Debian's Python {version} (cargo xtask test unpacks it)");
    }
    Ok(found)
}

/// The interpreters of known versions in `PATH`.
pub fn in_path() -> Result<Vec<Python>> {
    let folders = std::env::var_os("PATH").context("PATH is not set")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let of = |version: &&str| {
        let mut programs = folders.iter().map(|of| of.join(format!("python{version}")));
        let program = programs.find(|path| is_elf(path))?;
        Some(Python { version: (*version).to_owned(), program, root: None })
    };
    Ok(KNOWN.iter().filter_map(of).collect())
}

/// The interpreter that `cargo xtask test` has unpacked; `None` if it is not there.
pub fn unpacked(version: &str) -> Option<Python> {
    let root = build::target_directory().ok()?.join("pythons").join(version);
    let program = root.join("usr/bin").join(format!("python{version}"));
    let python = Python { version: version.to_owned(), program, root: Some(root) };
    is_elf(&python.program).then_some(python)
}

/// Whether a file is an ELF file: other files are scripts that choose an interpreter.
fn is_elf(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}
