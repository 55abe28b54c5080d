//! The scalable counter.

use super::{Counter, Switch, Word, Worker};
use crate::sampling::Random;

/// A counter that is exact below the switch-over; above it most events only read. See [`Switch`]
/// for the rule and its error.
#[derive(Debug)]
pub struct Scalable<W> {
    /// The count.
    pub word: W,
    /// Where the count becomes approximate, and how coarse.
    pub switch: Switch,
}

impl<W: Word> Counter for Scalable<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, worker: &mut Worker<R>) {
        let quantum = self.switch.quantum(self.word.load());
        let step = match quantum {
            0 => return,
            // No random number is drawn, and nothing is rounded.
            1 => Switch::bounded(amount),
            _ => Switch::step(quantum, amount, worker.random.next()),
        };
        if step != 0 {
            self.word.add(step);
        }
    }

    fn value(&self) -> u64 {
        Switch::shown(self.word.load())
    }
}
