//! The maps that the eBPF program and the daemon share.

pub mod live;
pub mod lost;
pub mod pending;
pub mod python;
pub mod shared;
pub mod stack_cache;
pub mod targets;
pub mod totals;
pub mod windows;
