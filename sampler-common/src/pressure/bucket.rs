//! A bucket that fills at a limit.

/// Capacity of a bucket, in seconds of its limit.
const CAPACITY_SECONDS: f64 = 0.25;
/// Smallest capacity of a bucket, samples: a limit of a few samples a second must not stop small
/// bursts.
const MIN_CAPACITY_SAMPLES: f64 = 16.0;

/// The samples that may still be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) limit: f64,
    holds: f64,
    rest: f64,
}

impl Bucket {
    pub(super) fn new(limit: f64) -> Bucket {
        let holds = (limit * CAPACITY_SECONDS).max(MIN_CAPACITY_SAMPLES);
        Bucket { limit, holds, rest: holds }
    }

    pub(super) fn take(&mut self, amount: f64) {
        self.rest -= amount;
    }

    pub(super) fn fill(&mut self, seconds: f64) {
        // A bucket without a limit is always full.
        let filled = self.rest + self.limit * seconds;
        self.rest = if filled.is_finite() { filled.min(self.holds) } else { self.holds };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest < 0.0
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.rest >= self.holds / 2.0 || self.holds.is_infinite()
    }

    /// Clears the debt, which a raise has answered.
    pub(super) fn forgive(&mut self) {
        self.rest = self.rest.max(0.0);
    }
}
