//! Target processes: identity, mappings, the allocators in them and where to probe those.

pub mod allocator;
pub mod elf;
pub mod mappings;
pub mod placement;
pub mod process;
