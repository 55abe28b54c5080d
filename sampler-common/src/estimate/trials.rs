//! Sums over samples for the failed-trials estimator.
//!
//! A sample at interval R stands for R − 1 failed trials on average, with variance R(R − 1). It
//! also stands for the tail of its allocation, whose trials were skipped (see
//! [`mod@super::failed_trials`]). These sums add, also over samples of different intervals.

use super::Sample;

/// Sums of failed trials over a set of samples. Sums of disjoint sets add.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trials {
    /// Σ(R − 1): expected failed trials before the samples.
    pub failures: f64,
    /// ΣR(R − 1): their variance.
    pub variance: f64,
    /// Σu: the hits and the bytes behind them.
    pub tail: f64,
}

impl Trials {
    /// The sums of one sample.
    ///
    /// If the position of the hit is unknown, or the sample was only kept with some probability,
    /// its weight s/π replaces (R − 1) + u. The weight is the expectation of that sum, given that
    /// the allocation was sampled.
    pub fn of(sample: &Sample) -> Trials {
        let interval = sample.design.interval();
        match sample.tail {
            Some(tail) if sample.kept >= 1.0 && interval.is_finite() => Trials {
                failures: interval - 1.0,
                variance: interval * (interval - 1.0),
                tail: tail as f64,
            },
            _ => {
                let inclusion = sample.inclusion().filter(|of| *of > 0.0).unwrap_or(1.0);
                let own = sample.size as f64;
                let weight = own / inclusion;
                Trials {
                    failures: weight - own,
                    variance: weight * weight * (1.0 - inclusion),
                    tail: own,
                }
            }
        }
    }

    /// Adds the sums of a disjoint set.
    pub fn add(&mut self, other: &Trials) {
        self.failures += other.failures;
        self.variance += other.variance;
        self.tail += other.tail;
    }

    /// Multiplies the sums by `count`.
    pub(super) fn scale(&mut self, count: f64) {
        self.failures *= count;
        self.variance *= count;
        self.tail *= count;
    }
}
