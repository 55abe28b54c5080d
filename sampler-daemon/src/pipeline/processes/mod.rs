//! Which processes are profiled, from their discovery to their end.

mod arrivals;
pub(super) mod attach;
pub(super) mod coverage;
mod detach;
pub(super) mod exclude;
pub(super) mod facts;
mod follow;
mod patched;
pub(super) mod process;
pub(super) mod process_events;
pub(super) mod refused;
mod schedule;
pub(super) mod survey;
pub(super) mod tree;
