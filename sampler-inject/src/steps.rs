//! Counts the steps that change something outside this process: a ptrace request, or a write.
//!
//! Tests kill the injector after each step (`--die-after`): every prefix of the sequence has to
//! leave the target unharmed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DONE: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Makes this process kill itself after `steps` steps.
pub fn die_after(steps: u64) {
    LAST.store(steps, Relaxed);
}

/// Number of steps so far.
#[must_use]
pub fn done() -> u64 {
    DONE.load(Relaxed)
}

/// Counts a step.
pub(crate) fn step() {
    if DONE.fetch_add(1, Relaxed) + 1 == LAST.load(Relaxed) {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
