//! Target processes: identity, mappings, the allocators in them and where to probe those.

pub mod allocator;
pub mod cgroup;
mod contents;
mod coverage;
pub mod elf;
mod emulated;
mod glibc;
pub mod hazard;
mod link_order;
pub mod mappings;
pub mod memory;
mod notes;
pub mod placement;
pub mod process;
pub mod seen;
mod symbols;
pub mod usable;
pub mod usdt;
