//! Finds the CPython interpreter of a process.
//!
//! The interpreter is in a library `libpython3.X.so…` or in an executable `python3.X`. It exports
//! `_PyRuntime` and the function that evaluates code. An interpreter counts as found only if its
//! own pointers lead in a circle.

use super::evaluation::{self, Evaluation};
use super::memory::{Memory, word};
use super::version::{self, Offsets, Running, Unknown};
use crate::inspect::elf::{Elf, ElfError};
use crate::inspect::mappings::{self, Backing, Mapping};
use sampler_common::wire::{PYTHON_SHARED, PythonRuntime};
use std::fs::File;

const RUNTIME: &str = "_PyRuntime";

/// An interpreter.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) offsets: Offsets,
    /// The kernel side's values, without the generation.
    pub(super) kernel: PythonRuntime,
    /// The function that evaluates code.
    pub(super) evaluation: Evaluation,
    /// Address of that function.
    pub(super) evaluate: u64,
}

/// Why Python frames are not shown.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// There is no table for the version.
    #[error(
        "{path}: Python {major}.{minor} is not known: its stacks have native frames only (known: releases of 3.9 to 3.14)"
    )]
    Version {
        /// Path of the interpreter's file.
        path: String,
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The interpreter was built without its lock.
    #[error(
        "{path}: Python {major}.{minor} is free-threaded, so the running thread is not known: its stacks have native frames only"
    )]
    FreeThreaded {
        /// Path of the interpreter's file.
        path: String,
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The file does not export a needed symbol.
    #[error("{path}: Python without the symbol {symbol}: its stacks have native frames only")]
    NoSymbol {
        /// Path of the interpreter's file.
        path: String,
        /// The missing symbol.
        symbol: &'static str,
    },
    /// The file cannot be read.
    #[error("{path}: {error}: stacks of Python have native frames only")]
    File {
        /// Path of the interpreter's file.
        path: String,
        /// The reason.
        error: String,
    },
    /// The interpreter has not started, or its pointers do not match. It may be ready later.
    #[error("{0}: Python's runtime is not set up as expected: its stacks have native frames only")]
    NotReady(String),
}

/// The mapping with the interpreter's code, the file's path, and the version in the file's name.
pub(super) fn mapping_of(mappings: &[Mapping]) -> Option<(&Mapping, &str, (u8, u8))> {
    let executable = mappings.iter().filter(|mapping| mapping.executable);
    let named = executable.filter_map(|mapping| {
        let Backing::File(path) = &mapping.backing else { return None };
        let name = path.rsplit('/').next()?;
        Some((mapping, path.as_str(), version_in(name)?))
    });
    // A program `python3.X` may have its interpreter in the library, so the library is preferred.
    named.max_by_key(|(_, path, _)| path.contains("/libpython"))
}

/// The version in a name like `libpython3.11.so.1.0` or `python3.11`.
fn version_in(name: &str) -> Option<(u8, u8)> {
    let version = name.strip_prefix("libpython").or_else(|| name.strip_prefix("python"))?;
    let (major, rest) = version.split_once('.')?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, digits.parse().ok()?))
}

/// The interpreter in a mapping of a process.
pub(super) fn find(
    pid: u32,
    memory: &dyn Memory,
    (mapping, path, (major, minor)): (&Mapping, &str, (u8, u8)),
) -> Result<Found, PythonError> {
    let failed = |error: String| PythonError::File { path: path.to_owned(), error };
    let file = mappings::open(pid, mapping).map_err(|error| failed(error.to_string()))?;
    let symbols = Symbols::of(&file).map_err(|error| failed(error.to_string()))?;
    let missing = |symbol| PythonError::NoSymbol { path: path.to_owned(), symbol };
    let evaluation = symbols.evaluation.ok_or_else(|| missing(evaluation::NAME))?;
    let runtime = symbols.runtime.ok_or_else(|| missing(RUNTIME))?;
    let address = mapping.start.wrapping_add(evaluation.offset().wrapping_sub(mapping.offset));
    let runtime = runtime.wrapping_add(address.wrapping_sub(evaluation.svma));
    let path = || path.to_owned();
    let offsets = match version::offsets((major, minor), memory, runtime) {
        Ok(offsets) => offsets,
        Err(Unknown::Version) => return Err(PythonError::Version { path: path(), major, minor }),
        Err(Unknown::FreeThreaded) => {
            return Err(PythonError::FreeThreaded { path: path(), major, minor });
        }
    };
    let current = checked(memory, &offsets, runtime);
    let current = current.ok_or_else(|| PythonError::NotReady(path()))?;
    let kernel = for_kernel(&offsets, runtime, current);
    Ok(Found { offsets, kernel, evaluation, evaluate: address })
}

/// The kernel side's values, without the generation, of the runtime at an address. The word at
/// `current` points to the running thread's state.
fn for_kernel(offsets: &Offsets, runtime: u64, current: u64) -> PythonRuntime {
    let (lock, holder, locked) = match offsets.running {
        Running::InRuntime(_) => (PYTHON_SHARED, 0, 0),
        Running::ByLock { lock, holder, locked } => (lock, holder, locked),
    };
    PythonRuntime {
        current,
        interpreters: runtime.wrapping_add(offsets.main_interpreter).wrapping_sub(8),
        next: offsets.interpreter.next,
        lock,
        holder,
        locked,
        ..offsets.kernel
    }
}

/// Address of the word that points to the running thread's state. `None` unless a thread of the
/// main interpreter points back to that interpreter.
fn checked(memory: &dyn Memory, offsets: &Offsets, runtime: u64) -> Option<u64> {
    let at = |base: u64, offset: u64| word(memory, base.checked_add(offset)?);
    let interpreter = at(runtime, offsets.main_interpreter)?;
    let thread = at(interpreter, offsets.interpreter.threads)?;
    if interpreter == 0 || at(thread, offsets.interpreter.of_thread)? != interpreter {
        return None;
    }
    let current = match offsets.running {
        Running::InRuntime(offset) => runtime.checked_add(offset)?,
        Running::ByLock { lock, holder, .. } => at(interpreter, lock)?.checked_add(holder)?,
    };
    // The word is 0 while no thread runs.
    let running = word(memory, current)?;
    let is_state = |state| {
        at(state, offsets.interpreter.of_thread).is_some_and(|of| of != 0)
            && at(state, offsets.kernel.thread_id).is_some_and(|id| id != 0)
    };
    (running == 0 || is_state(running)).then_some(current)
}

/// The needed symbols of a file.
struct Symbols {
    /// Address of `_PyRuntime` in the file's own address space.
    runtime: Option<u64>,
    evaluation: Option<Evaluation>,
}

impl Symbols {
    fn of(file: &File) -> Result<Symbols, ElfError> {
        let elf = Elf::read(file)?;
        let evaluation = Evaluation::of(file, &elf)?;
        Ok(Symbols { runtime: elf.dynamic_data(RUNTIME)?, evaluation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_version_is_read_from_file_names() {
        assert_eq!(version_in("libpython3.11.so.1.0"), Some((3, 11)));
        assert_eq!(version_in("python3.9"), Some((3, 9)));
        assert_eq!(version_in("python3.13t"), Some((3, 13)));
        for other in ["python3", "libpython3.so", "python-config", "pythonista3.11", "perl5.36"] {
            assert_eq!(version_in(other), None, "{other}");
        }
    }
}
