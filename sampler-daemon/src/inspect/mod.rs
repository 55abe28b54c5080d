//! Target processes: their identity, their mappings, their allocators, and where to probe the
//! allocators.

pub mod allocator;
pub mod allocator_text;
pub(crate) mod calls;
pub mod cgroup;
pub mod code_in_memory;
mod contents;
mod coverage;
mod definitions;
pub mod discoverer;
pub mod discovery;
pub mod elf;
mod emulated;
pub mod environment;
mod families;
mod family;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod hazard;
pub mod htlhash;
mod in_force;
pub mod injected;
pub mod inspected_files;
pub mod mappings;
mod maps;
pub mod memory;
mod mount;
mod moved;
pub mod moving;
pub(crate) mod notes;
pub mod patched;
pub mod placement;
pub mod preloaded;
pub mod probe_addresses;
mod probes;
pub mod process;
pub mod processor;
mod program;
pub mod runtime;
pub mod spec;
mod symbols;
pub mod unchanged;
pub mod usable;
pub mod usdt;
