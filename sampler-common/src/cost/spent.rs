//! CPU time in probes, with its interval.

use crate::estimate::Confidence;
use statrs::distribution::{ContinuousCDF as _, Normal};

/// A figure with its interval, 0 ≤ `low` ≤ `value` ≤ `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The figure.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Range {
    /// A range of numbers from outside.
    ///
    /// # Errors
    /// One line, unless 0 ≤ `low` ≤ `value` ≤ `high`, and all are finite.
    pub fn checked(value: f64, low: f64, high: f64) -> Result<Range, String> {
        match 0.0 <= low && low <= value && value <= high && high.is_finite() {
            true => Ok(Range { value, low, high }),
            false => Err(format!("value {value} lies outside its interval {low} to {high}")),
        }
    }

    /// The range in other units.
    #[must_use]
    pub fn times(self, factor: f64) -> Range {
        let Range { value, low, high } = self;
        Range { value: value * factor, low: low * factor, high: high * factor }
    }

    /// The share of `whole`; `None` if `whole` is not positive.
    pub fn share_of(self, whole: f64) -> Option<Range> {
        (whole > 0.0).then(|| self.times(1.0 / whole))
    }
}

/// CPU time spent in probes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Nanoseconds.
    pub ns: f64,
    /// Variance of `ns`, from the errors of prices and counts.
    pub variance: f64,
    /// Events without a price, which are not in `ns`.
    pub unpriced: f64,
}

impl Spent {
    /// The interval in nanoseconds, normal: many batches and counts are behind it.
    pub fn range(&self, confidence: Confidence) -> Range {
        let z = -Normal::standard().inverse_cdf(confidence.alpha() / 2.0);
        let half = z * self.variance.sqrt();
        Range { value: self.ns, low: (self.ns - half).max(0.0), high: self.ns + half }
    }

    /// The time spent per second, in nanoseconds per second, if it was spent in `seconds`; `None`
    /// unless `seconds` is positive.
    pub fn per_second(&self, seconds: f64) -> Option<Spent> {
        (seconds > 0.0).then(|| Spent {
            ns: self.ns / seconds,
            variance: self.variance / (seconds * seconds),
            unpriced: self.unpriced / seconds,
        })
    }
}
