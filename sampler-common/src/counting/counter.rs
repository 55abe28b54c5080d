//! What every counter does.

use crate::sampling::Random;

/// Who counts: a thread or a CPU.
#[derive(Clone, Debug)]
pub struct Worker<R> {
    /// Its number, from 0; different workers may share one.
    pub number: usize,
    /// Its own source of random bits, seeded differently from every other worker's: equal ones make
    /// workers that run in step err together, and the variance grows by their number.
    ///
    /// For one counter only. Of two contended counters that draw from one source, which of them gets a number depends on when an
    /// exchange fails, and a processor that runs ahead has acted on that number by then: measured, the one came out 5 % too
    /// high and the other 5 % too low; with a source each both are unbiased.
    pub random: R,
}

/// A count that many workers add to.
pub trait Counter {
    /// Adds `amount`.
    fn add<R: Random>(&self, amount: u64, worker: &mut Worker<R>);

    /// Counts one event.
    #[inline(always)]
    fn count<R: Random>(&self, worker: &mut Worker<R>) {
        self.add(1, worker);
    }

    /// The count now.
    fn value(&self) -> u64;
}
