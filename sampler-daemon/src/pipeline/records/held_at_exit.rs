//! Blocks that a process still held when it exited. They are forgotten, or kept to find leaks.

use super::ingest::Ingest;
use crate::pipeline::report::leaks::unix_ns;
use crate::pipeline::worker::Worker;
use crate::store::{Orphaned, ProcessRecord};
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Confidence, weighted};
use sampler_common::note::{Loss, Note, Part, Reason};

/// What becomes of the blocks that a process holds when it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtExit {
    /// The blocks are no longer held.
    Forget,
    /// The blocks stay in the live profile, up to its bound ([`crate::store::live::MAX_LEFT`]).
    Keep,
}

impl Worker {
    /// Ends the blocks of the processes in these slots, which have exited.
    pub(in crate::pipeline) fn end_all_blocks(&mut self, slots: &[u32]) {
        if self.config.at_exit == AtExit::Keep {
            // The live set is exact, and its entries are removed next.
            self.repair();
        }
        let ended = self.ingest.end_blocks(slots, None, Outcome::EndedByExit);
        if self.config.at_exit == AtExit::Keep {
            let Ingest { live, processes, .. } = &mut self.ingest;
            live.leave_behind(ended, |process| processes.holder(process));
        }
    }

    /// The held blocks of a process that cannot be followed any more.
    pub(in crate::pipeline) fn orphaned(record: &ProcessRecord) -> Option<Reason> {
        let Orphaned { since, moments } = record.orphaned?;
        let interval_bytes = record.sampling.largest_interval();
        let held = weighted(&moments.inuse_space, interval_bytes, Confidence::DEFAULT);
        Some(Reason::Orphaned {
            since_unix_ms: unix_ns(since) / 1_000_000,
            bytes: held.value as u64,
            low_bytes: held.low as u64,
            high_bytes: held.high as u64,
            samples: moments.inuse_space.samples,
        })
    }

    /// The notes on blocks held at exit.
    pub(in crate::pipeline) fn held_notes(&self) -> impl Iterator<Item = Note> {
        let keeps = self.config.at_exit == AtExit::Keep;
        let kept = keeps.then_some(Note::Part(Part::HeldAtExit));
        kept.into_iter().chain(Note::counted(self.ingest.live.left_out(), Loss::LeftAtExit))
    }
}
