//! Records of the ring: read, unwound, and added to the store.

mod captured_stack;
pub(super) mod file_closer;
pub(super) mod held_at_exit;
mod images;
pub(super) mod ingest;
pub(super) mod mapped;
pub(super) mod python;
pub(super) mod reading;
mod stack_cache;
pub(super) mod stale_returns;
