//! Names for frames: functions, files, lines, inlined calls. Lazily, in batches, cached.
//!
//! blazesym reads ELF and DWARF (detached debug files included); perf maps and the vdso, which it would
//! look for in a living process, are read here.

mod demangled;
mod elf;
mod perf_map;
pub mod symbolizer;
#[cfg(test)]
mod tests;
mod vdso;

pub use symbolizer::Symbolizer;
