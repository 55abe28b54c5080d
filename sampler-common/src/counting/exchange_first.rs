//! The scalable counter that tries the exact way first.

use super::{Counter, Switch, Word, Worker};
use crate::sampling::Random;

/// Adds exactly by compare-exchange, and becomes a [`super::Scalable`] counter for the events whose
/// exchange fails because another worker was there in between.
///
/// Without contention it is exact. Either way an event adds its amount on average (the exchange
/// exactly, the fall-back by
/// [`Switch::step`]), so that it is unbiased, with a variance of at most the scalable counter's. The price: every event asks for
/// the line, as the interlocked counter does.
#[derive(Debug)]
pub struct ExchangeFirst<W> {
    /// The count.
    pub word: W,
    /// Where an event whose exchange failed becomes approximate, and how coarse.
    pub switch: Switch,
}

impl<W: Word> Counter for ExchangeFirst<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, worker: &mut Worker<R>) {
        let value = self.word.load();
        let quantum = self.switch.quantum(value);
        let amount = Switch::bounded(amount);
        if quantum == 0 || self.word.exchange(value, value.wrapping_add(amount)) {
            return;
        }
        let step = match quantum {
            1 => amount,
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
