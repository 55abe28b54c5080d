//! How much is sampled: the requested intervals, and those in force.

pub(super) mod epochs;
pub(super) mod pressure;
pub(super) mod sampling;
