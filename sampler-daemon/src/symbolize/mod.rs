//! Names for frames: functions, files, lines, inlined calls. Lazily, in batches, cached.
//!
//! blazesym reads ELF and DWARF (detached debug files included), in the parser process; the vdso, which it would look for in a living process, is read
//! here. Generated code has the names that it had when it was sampled ([`crate::unwind::GeneratedCode`]).

mod demangled;
pub(crate) mod elf;
pub mod symbolizer;
#[cfg(test)]
pub(crate) mod tests;
mod vdso;

pub use symbolizer::{Reader, Symbolizer};
pub(crate) use symbolizer::{files, without_names};
