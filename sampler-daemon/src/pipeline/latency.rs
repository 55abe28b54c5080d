//! Latencies, as histograms. Bounds are fixed and counts only grow, so that two readings show what
//! came in between.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of times, nanoseconds: 100 µs to 10 s.
const TIME_BOUNDS_NS: [u64; 11] = [
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
];
/// Upper bounds of shares, millionths.
const SHARE_BOUNDS_PPM: [u64; 8] =
    [1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 750_000, 900_000];

/// Requests whose answers are timed.
pub(super) const QUESTIONS: [&str; 7] =
    ["status", "processes", "set_sampling", "profile", "lifetimes", "leaks", "metrics"];

/// Number of values below each of several bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64],
    /// Counted values in one base unit (second, 1).
    per_unit: u64,
    /// One more than there are bounds: the last counts all values above.
    counts: Vec<u64>,
    sum: u64,
}

impl Histogram {
    /// A histogram of times: counted in nanoseconds, read in seconds.
    pub fn of_times() -> Histogram {
        Histogram::new(&TIME_BOUNDS_NS, 1_000_000_000)
    }

    /// A histogram of shares of a whole: counted in millionths, read as a ratio.
    pub fn of_shares() -> Histogram {
        Histogram::new(&SHARE_BOUNDS_PPM, 1_000_000)
    }

    fn new(bounds: &'static [u64], per_unit: u64) -> Histogram {
        Histogram { bounds, per_unit, counts: vec![0; bounds.len() + 1], sum: 0 }
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Number of values counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values, in base units.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.per_unit as f64
    }

    /// Each bound in base units, inclusive, with the number of values up to it. The number of all
    /// values is [`Histogram::count`].
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / self.per_unit as f64);
        let mut below = 0;
        let counts = self.counts.iter().map(|count| {
            below += count;
            below
        });
        bounds.zip(counts).collect()
    }
}

/// How long the worker took to answer, by request. All clients share these histograms.
pub(super) struct Answers(Mutex<BTreeMap<&'static str, Histogram>>);

impl Default for Answers {
    fn default() -> Answers {
        Answers(Mutex::new(QUESTIONS.map(|name| (name, Histogram::of_times())).into()))
    }
}

impl Answers {
    /// Counts an answer.
    pub(super) fn add(&self, question: &'static str, took: Duration) {
        // After a panic under the lock a histogram is still consistent.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(question).or_insert_with(Histogram::of_times).add(took.as_nanos() as u64);
    }

    /// All histograms, by name.
    pub(super) fn read(&self) -> Vec<(&'static str, Histogram)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, histogram)| (*name, histogram.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let mut times = Histogram::of_times();
        for ns in [1, 100_000, 100_001, 50_000_000, u64::from(u32::MAX) * 10] {
            times.add(ns);
        }
        let cumulative = times.cumulative();
        assert_eq!(cumulative[0], (0.0001, 2));
        assert_eq!(cumulative[1], (0.0003, 3));
        assert_eq!(cumulative[6], (0.1, 4));
        assert_eq!(cumulative.last(), Some(&(10.0, 4)), "one is above all bounds");
        assert_eq!(times.count(), 5);
        assert!((times.sum() - 43.0).abs() < 0.1, "{}", times.sum());
        let mut shares = Histogram::of_shares();
        shares.add(1_000_000);
        shares.add(0);
        assert_eq!((shares.count(), shares.sum()), (2, 1.0));
        assert_eq!(shares.cumulative()[0], (0.001, 1));
    }

    #[test]
    fn every_question_has_a_histogram_from_the_start() {
        let answers = Answers::default();
        answers.add("profile", Duration::from_millis(2));
        let all = answers.read();
        assert_eq!(all.len(), QUESTIONS.len());
        let counts: u64 = all.iter().map(|(_, of)| of.count()).sum();
        assert_eq!(counts, 1);
    }
}
