//! Processes with the in-process sampler: how it gets there, and how it is kept within its limits.

pub(super) mod injected;
pub(super) mod injections;
pub(super) mod library_settings;
mod overhead_budget;
mod self_sampled;
