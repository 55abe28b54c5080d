//! CPU time with its error: the price of one event, from batches of events, or a sum of prices.

use super::Range;
use crate::estimate::Confidence;
use statrs::distribution::{ContinuousCDF as _, Normal};

/// Fewest batches that give a price.
const MIN_BATCHES: usize = 5;
/// z of a two-sided interval of 95 %, for the order statistics.
const Z: f64 = 1.959_963_984_540_054;

/// CPU time with its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Nanoseconds of CPU time.
    pub ns: f64,
    /// Variance of `ns`: its standard error squared.
    pub variance: f64,
}

impl Measured {
    /// The price from the nanoseconds per event of each batch, in any order; `None` for fewer than
    /// five batches.
    ///
    /// The price is the median, since an interrupt or a neighbour makes single batches expensive
    /// and none cheap. Its standard error needs no assumption on the distribution. The order
    /// statistics of ranks n/2 ± z·√n/2 enclose the median with 95 % (binomial). Half their
    /// distance is z standard errors. Source: W. J. Conover, "Practical Nonparametric Statistics"
    /// (1999), section 3.2.
    pub fn of_batches(batches: &[f64]) -> Option<Measured> {
        let mut sorted: Vec<f64> = batches.iter().copied().filter(|ns| ns.is_finite()).collect();
        let n = sorted.len();
        if n < MIN_BATCHES {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        let below = ((n as f64 - Z * (n as f64).sqrt()) / 2.0).floor().max(0.0) as usize;
        let error = (sorted[n - 1 - below] - sorted[below]) / (2.0 * Z);
        Some(Measured { ns: median, variance: error * error })
    }

    /// Standard error, nanoseconds.
    pub fn error(&self) -> f64 {
        self.variance.sqrt()
    }

    /// The interval, normal: many batches and counts are behind it.
    pub fn range(&self, confidence: Confidence) -> Range {
        let z = -Normal::standard().inverse_cdf(confidence.alpha() / 2.0);
        let half = z * self.error();
        Range { value: self.ns, low: (self.ns - half).max(0.0), high: self.ns + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_expensive_batches_do_not_change_the_estimate() {
        let quiet: Vec<f64> = (0..25).map(|i| 500.0 + f64::from(i % 5)).collect();
        let calm = Measured::of_batches(&quiet).unwrap();
        let mut noisy = quiet.clone();
        noisy[..5].fill(90_000.0);
        let measured = Measured::of_batches(&noisy).unwrap();
        assert!((measured.ns - calm.ns).abs() <= 1.0, "{measured:?} {calm:?}");
        assert!(measured.error() < 3.0 && calm.error() > 0.0, "{measured:?}");
        assert_eq!(Measured::of_batches(&quiet[..4]), None);
        assert_eq!(Measured::of_batches(&[f64::NAN; 9]), None);
    }
}
