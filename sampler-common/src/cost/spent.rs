//! CPU time in probes, with its interval.

use super::Measured;
use serde::{Deserialize, Serialize};

/// A figure with its interval, 0 ≤ `low` ≤ `value` ≤ `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The figure.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Range {
    /// A range `name` from outside, if there is one.
    ///
    /// # Errors
    /// One line, unless 0 ≤ `low` ≤ `value` ≤ `high`, and all are finite.
    pub fn checked(name: &str, of: Option<Range>) -> Result<Option<Range>, String> {
        let is_wrong = |&Range { value, low, high }: &Range| {
            !(0.0 <= low && low <= value && value <= high && high.is_finite())
        };
        match of.filter(is_wrong) {
            None => Ok(of),
            Some(Range { value, low, high }) => {
                Err(format!("{name}: value {value} lies outside its interval {low} to {high}"))
            }
        }
    }

    /// The range in other units.
    #[must_use]
    pub fn times(self, factor: f64) -> Range {
        let Range { value, low, high } = self;
        Range { value: value * factor, low: low * factor, high: high * factor }
    }
}

/// CPU time spent in probes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The time.
    pub cpu: Measured,
    /// Events without a price, which are not in `cpu`.
    pub unpriced: f64,
}
