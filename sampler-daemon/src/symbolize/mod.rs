//! Names for frames: functions, files, lines, inlined calls. They are looked up lazily, in batches,
//! and cached.
//!
//! blazesym and addr2line read ELF and DWARF, in the parser process. blazesym would look for the
//! vdso in a living process, so this module reads the vdso itself. Generated code has its names
//! from the time of the sample ([`crate::unwind::GeneratedCode`]).

mod cached_lines;
mod debug_data;
pub(crate) mod debug_file;
mod demangled;
pub(crate) mod elf;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod given_name;
mod plt;
pub mod symbolizer;
#[cfg(test)]
pub(crate) mod tests;
mod vdso;

pub use symbolizer::{Reader, Symbolizer};
pub(crate) use symbolizer::{as_called, files, unnamed_code, without_names};
