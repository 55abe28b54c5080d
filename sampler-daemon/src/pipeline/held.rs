//! What a process still held when it exited: gone with it, or kept for those who look for leaks.

use super::worker::Worker;
use crate::store::{Orphaned, ProcessId};
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Confidence, weighted};
use sampler_common::units;
use std::time::SystemTime;

/// What becomes of the blocks that a process holds when it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtExit {
    /// They are no longer held.
    Forget,
    /// They stay in the live profile, to its bound ([`crate::store::live::MAX_LEFT`]).
    Keep,
}

impl Worker {
    /// The processes in these slots are gone.
    pub(super) fn end_all_blocks(&mut self, slots: &[u32]) {
        if self.config.at_exit == AtExit::Keep {
            // The live set is the truth, and its entries go next.
            self.repair();
        }
        let ended = self.end_blocks(slots, None, Outcome::EndedByExit);
        if self.config.at_exit == AtExit::Keep {
            self.ingest.live.leave_behind(ended);
        }
    }

    /// What is to be said of blocks of these processes that cannot be followed any more; each with the process.
    pub(super) fn orphaned(&self, processes: &[ProcessId]) -> Vec<(ProcessId, String)> {
        let line = |id: &ProcessId| {
            let record = self.ingest.processes.get(*id);
            let Orphaned { since, moments } = record.orphaned?;
            let interval_bytes = record.sampling.largest_interval();
            let held = weighted(&moments.inuse_space, interval_bytes, Confidence::DEFAULT);
            let ago = SystemTime::now().duration_since(since).unwrap_or_default();
            let line = format!(
                "its sampler was taken out {} ago: {} ({} … {}) that it held then, {} samples, cannot be followed any more, and do not count as held",
                units::human_duration(ago),
                units::human_bytes(held.value),
                units::human_bytes(held.low),
                units::human_bytes(held.high),
                units::grouped(moments.inuse_space.samples),
            );
            Some((*id, line))
        };
        processes.iter().filter_map(line).collect()
    }

    /// What is to be said of blocks held at exit.
    pub(super) fn held_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.config.at_exit == AtExit::Keep {
            notes.push("held numbers include what exited processes held to the end".to_owned());
        }
        let left_out = self.ingest.live.left_out();
        if left_out > 0 {
            notes.push(format!(
                "what was held at exit is a lower bound: {left_out} samples found no room (give a larger interval)"
            ));
        }
        notes
    }
}
