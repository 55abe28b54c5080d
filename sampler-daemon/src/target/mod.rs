//! Target processes: identity, mappings, the allocators in them and where to probe those.

pub mod allocator;
mod contents;
pub mod elf;
mod emulated;
mod glibc;
pub mod hazard;
pub mod mappings;
mod notes;
pub mod placement;
pub mod process;
pub mod seen;
mod symbols;
