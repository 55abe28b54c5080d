//! Target processes: their identity, their mappings, their allocators, and where to probe the
//! allocators.

pub mod allocator;
pub mod code;
mod coverage;
pub mod discoverer;
pub mod discovery;
pub mod elf;
mod families;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
pub mod hazard;
pub mod htlhash;
pub mod mappings;
pub mod placement;
pub mod process;
pub mod usdt;
