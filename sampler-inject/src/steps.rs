//! Every step that changes something outside this process: a ptrace request, or a write.
//!
//! Tests have the injector killed after each of them (`--die-after`), since each prefix of the sequence has to leave the target unharmed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DONE: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Has this process kill itself after so many steps.
pub fn die_after(steps: u64) {
    LAST.store(steps, Relaxed);
}

/// Steps that were done.
#[must_use]
pub fn done() -> u64 {
    DONE.load(Relaxed)
}

/// A step was done.
pub(crate) fn step() {
    if DONE.fetch_add(1, Relaxed) + 1 == LAST.load(Relaxed) {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
