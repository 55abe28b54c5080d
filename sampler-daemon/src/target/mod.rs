//! Target processes: identity, mappings, the allocators in them and where to probe those.

pub mod allocator;
mod calls;
pub mod cgroup;
mod contents;
mod coverage;
pub mod elf;
mod emulated;
mod families;
mod family;
pub mod hazard;
mod in_force;
pub mod inside;
pub mod mappings;
pub mod memory;
mod notes;
pub mod placement;
pub mod preloaded;
mod probes;
pub mod process;
pub mod processor;
pub mod seen;
pub mod spec;
pub mod spots;
mod symbols;
pub mod traffic;
pub mod usable;
pub mod usdt;
