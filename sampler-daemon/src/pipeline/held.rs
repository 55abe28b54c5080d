//! What a process still held when it exited: gone with it, or kept for those who look for leaks.

use super::worker::Worker;
use sampler_common::counters::Outcome;
use sampler_common::note::{Loss, Note, Part};

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

    /// The notes on blocks held at exit.
    pub(super) fn held_notes(&self) -> impl Iterator<Item = Note> {
        let keeps = self.config.at_exit == AtExit::Keep;
        let kept = keeps.then_some(Note::Part(Part::HeldAtExit));
        kept.into_iter().chain(Note::counted(self.ingest.live.left_out(), Loss::LeftAtExit))
    }
}
