//! Looks over all processes of the machine: for allocators that nobody has called yet, and for processes that were missed.

use super::worker::Worker;
use rustc_hash::FxHashMap;
use std::fs;
use std::time::{Duration, Instant};

/// How often new processes are looked for.
const PERIOD: Duration = Duration::from_secs(1);
/// How often every process is looked at again, for what events have missed.
const AGAIN: Duration = Duration::from_secs(30);

/// What has been looked at.
#[derive(Default)]
pub(super) struct Survey {
    next: Option<Instant>,
    /// When each process is looked at again.
    known: FxHashMap<u32, Instant>,
}

impl Worker {
    /// Looks for new processes, where it is time to.
    pub(super) fn survey(&mut self) {
        let now = Instant::now();
        if !self.is_open() || self.survey.next.is_some_and(|next| now < next) {
            return;
        }
        self.survey.next = Some(now + PERIOD);
        let gone = self.gone(|_| true);
        if !gone.is_empty() {
            self.settle();
            self.detach_exited(&gone);
        }
        let pids = pids();
        self.survey.known.retain(|pid, _| pids.contains(pid));
        let own = std::process::id();
        for pid in pids.into_iter().filter(|pid| *pid != own) {
            if self.survey.known.get(&pid).is_some_and(|next| now < *next) {
                continue;
            }
            self.survey.known.insert(pid, now + AGAIN);
            self.look_at(pid);
        }
    }

    /// Attaches to the allocators of a process.
    fn look_at(&mut self, pid: u32) {
        // A kernel thread has none, and a process that cannot be read is exiting.
        let Ok(discovery) = self.discoverer.discover(pid) else { return };
        for allocator in discovery.allocators {
            let track_live = self.config.settings.track_live;
            if let Err(error) = self.shared.attach(&mut self.kernel, &allocator, track_live) {
                tracing::warn!(pid, path = allocator.path, "{error:#}");
            }
        }
    }
}

/// All processes.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
