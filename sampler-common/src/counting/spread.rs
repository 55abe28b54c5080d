//! The interval of a scalable counter.
//!
//! Plainly: which numbers of events bring the counter to the value that was read, and not beyond?
//! With the smallest number the counter has just reached the value. With the largest it would leave
//! the value at the next event.
//!
//! # Derivation
//!
//! The number of events at which the value v is reached is T(v), with mean v and variance S(v)
//! ([`super::Switch`]). T(v) is a sum of independent geometric waits, hundreds of them as soon as
//! the error matters, hence close to normal. A counter that shows v has seen at least T(v) events
//! and fewer than T(v + q):
//!
//! ```text
//! low  = v − z·√S(v)                  (never below min(v, 2^k), which is certain)
//! high = v + q − 1 + z·√S(v + q)
//! ```
//!
//! with z the normal quantile of (1 + confidence)/2. Below the switch-over S = 0 and q = 1: the
//! interval is the value.
//!
//! `tests/counting.rs` measures the coverage at k = 8, the coarsest counter. An interval of 95 %
//! covers 95.1 % and more. Within a few events of the switch-over it covers 93.7 %: the waits are
//! too few to be normal.

use super::{SATURATED, Switch};
use crate::estimate::Confidence;
use statrs::distribution::{ContinuousCDF, Normal};
use std::iter::Sum;

/// A count with its interval, `low ≤ value ≤ high`; all three are equal if the count is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The unbiased estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; infinite if the counter is saturated.
    pub high: f64,
}

impl Count {
    /// An exact count.
    pub fn exact(value: u64) -> Count {
        let value = value as f64;
        Count { value, low: value, high: value }
    }

    /// The rest of the exact `total` without this count; never below 0.
    pub fn left_of(self, total: u64) -> Count {
        let left = |part: f64| (total as f64 - part).max(0.0);
        Count { value: left(self.value), low: left(self.high), high: left(self.low) }
    }
}

impl Switch {
    /// S(v): variance of the number of single events that take a count to `value`, and the unbiased
    /// estimate of the variance of that value.
    pub fn variance(self, value: u64) -> f64 {
        let value = value.min(SATURATED);
        let part = |octave: u32| {
            let low = 1u64 << octave;
            let high = value.min(low.saturating_mul(2));
            high.saturating_sub(low) as f64 * (self.quantum(low) - 1) as f64
        };
        (self.log2()..63).map(part).sum()
    }

    /// The largest variance of a count of `total`, for any amounts of its additions: `total`²/2^k.
    pub fn largest_variance(self, total: f64) -> f64 {
        total * total / (1u64 << self.log2()) as f64
    }

    /// The number of events behind a counter of single events that shows `value`.
    pub fn count(self, value: u64, confidence: Confidence) -> Count {
        self.sum(&[value], confidence)
    }

    /// The number of all events behind counters that show `values`: variances add, not bounds.
    pub fn sum(self, values: &[u64], confidence: Confidence) -> Count {
        values.iter().map(|value| self.counted(*value)).sum::<Counted>().count(confidence)
    }

    /// The contribution of a counter of single events that shows `value` to a sum of counters.
    pub fn counted(self, value: u64) -> Counted {
        let next = value.saturating_add(self.quantum(value));
        Counted {
            total: Switch::shown(value) as f64,
            certain: value.min(1 << self.log2()),
            below: self.variance(value),
            above: self.variance(next),
            waiting: self.quantum(value).saturating_sub(1),
            saturated: value >= SATURATED,
        }
    }
}

/// A sum of counters. It can be kept after the counters are reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Sum of the unbiased estimates.
    total: f64,
    /// Events that are certain.
    certain: u64,
    /// Variance of the number of events at which the values were reached.
    below: f64,
    /// Variance of the number of events at which the next values are reached.
    above: f64,
    /// Most events that may have come since the values were reached.
    waiting: u64,
    /// Whether one of the counters was saturated.
    saturated: bool,
}

impl Counted {
    /// Adds other counters.
    pub fn add(&mut self, other: &Counted) {
        self.total += other.total;
        self.certain = self.certain.saturating_add(other.certain);
        self.below += other.below;
        self.above += other.above;
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.saturated |= other.saturated;
    }

    /// Whether there were no counters at all.
    pub fn is_zero(&self) -> bool {
        *self == Counted::default()
    }

    /// The number of all events of the counters.
    pub fn count(&self, confidence: Confidence) -> Count {
        let z = quantile(confidence);
        let high = self.total + self.waiting as f64 + z * self.above.sqrt();
        Count {
            value: self.total,
            low: (self.total - z * self.below.sqrt()).max(self.certain as f64),
            high: if self.saturated { f64::INFINITY } else { high },
        }
    }
}

impl Sum for Counted {
    fn sum<I: Iterator<Item = Counted>>(counters: I) -> Counted {
        counters.fold(Counted::default(), |mut sum, counter| {
            sum.add(&counter);
            sum
        })
    }
}

/// z of a two-sided interval.
fn quantile(confidence: Confidence) -> f64 {
    -Normal::standard().inverse_cdf(confidence.alpha() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S(v), added up rung by rung.
    fn ladder(switch: Switch, to: u64) -> f64 {
        let (mut value, mut sum) = (0u64, 0.0);
        while value < to {
            let quantum = switch.quantum(value);
            sum += (quantum * (quantum - 1)) as f64;
            value += quantum;
        }
        sum
    }

    #[test]
    fn the_variance_equals_the_sum_over_all_quanta() {
        for log2 in [8, 10, 13] {
            let switch = Switch::at(log2).unwrap();
            for switch in [switch, switch.capped(2)] {
                for multiple in [0u64, 1, 2, 3, 4, 6, 7, 8, 31, 32, 33, 100] {
                    let value = multiple << log2;
                    assert_eq!(switch.variance(value), ladder(switch, value), "{value}");
                    assert!(switch.variance(value) <= switch.largest_variance(value as f64));
                }
            }
        }
    }

    #[test]
    fn the_relative_error_is_largest_a_third_into_an_octave() {
        let switch = Switch::DEFAULT;
        let relative = |value: u64| switch.variance(value).sqrt() / value as f64;
        let bound = (0.75f64 / 8192.0).sqrt();
        let values =
            (14..60).flat_map(|octave| (0..64).map(move |part| (64 + part) << (octave - 6)));
        let worst = values.max_by(|a, b| relative(*a).total_cmp(&relative(*b))).unwrap();
        assert!(relative(worst) <= bound && relative(worst) > 0.999 * bound);
        let place = worst as f64 / 2f64.powi(worst.ilog2() as i32);
        assert!((place - 4.0 / 3.0).abs() < 0.02, "{place}");
    }

    #[test]
    fn exact_counts_have_no_interval() {
        let switch = Switch::DEFAULT;
        for value in [0, 1, 8191] {
            assert_eq!(switch.count(value, Confidence::DEFAULT), Count::exact(value));
        }
        // At the switch-over some events may have gone unnoticed already, but none was invented.
        let edge = switch.count(8192, Confidence::DEFAULT);
        assert!(edge.low == 8192.0 && edge.high > 8193.0 && edge.high < 8197.0, "{edge:?}");
        let saturated = switch.count(u64::MAX, Confidence::DEFAULT);
        assert!(saturated.high.is_infinite() && saturated.low < saturated.value);
    }

    #[test]
    fn counts_add_by_their_variances() {
        let (one, switch) = (1 << 20, Switch::DEFAULT);
        let single = switch.count(one, Confidence::DEFAULT);
        let four = switch.sum(&[one; 4], Confidence::DEFAULT);
        assert_eq!(four.value, 4.0 * single.value);
        let ratio = (four.value - four.low) / (single.value - single.low);
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
        assert_eq!(switch.sum(&[], Confidence::DEFAULT), Count::exact(0));
        assert_eq!(switch.sum(&[7, 8000], Confidence::DEFAULT), Count::exact(8007));
        let left = four.left_of(5 << 20);
        assert_eq!(left.value, single.value);
        assert!(left.low < left.value && left.value < left.high);
        assert_eq!(four.left_of(1), Count::exact(0));
    }
}
