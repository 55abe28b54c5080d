//! The growth of held memory in a period.
//!
//! Plainly: growth is what is held at the end minus what was held at the beginning. That equals the
//! blocks that arrived in the period and stayed, minus the blocks that were there before and
//! departed. A block that is held at both ends is in neither sum, and neither is a block that
//! arrived and departed in between. Such a sample cancels exactly, however little is sampled. So
//! the error is that of the few blocks that changed the sum. In the difference of two live profiles
//! it would be that of the many blocks that make up the sum.
//!
//! # Derivation
//!
//! Let C be the blocks that arrived in the period and are held at its end. Let W be the blocks that
//! were held at its beginning and were freed in it.
//!
//! ```text
//! growth = Σ_C s − Σ_W s,   estimated by   Σ_sampled C w − Σ_sampled W w,   w = s/π
//! ```
//!
//! Both are sums over sets of blocks that the program determines. Each block has the π that its
//! sample has at the end of its life or now (thinning included), so both sums are unbiased. The
//! sets are disjoint, so the sums are independent.
//!
//! # What the interval is for
//!
//! The interval is for two growths: the one that has happened, and the one that such a program
//! shows on average in such a period. A steady queue holds a few blocks more or fewer at any
//! moment. If every allocation is sampled, the change is certain, and still no leak. So coming and
//! going count as chance too: events of a Poisson process, of which samples are a random part.
//!
//! The variance of a sum of such events is Σw², not Σw²(1 − π) as for [`super::weighted()`]. The
//! bounds are those of Fay and Feuer's gamma interval as in their paper; for small π both are the
//! same. For the growth that has happened they are too wide, never too narrow, since
//! Σw²(1 − π) ≤ Σw². The interval of the difference is that of [`super::difference()`] (Zou and
//! Donner).
//!
//! For equal weights, a test of C against W, given the number n of all samples that arrived or
//! departed, is the sign test of n fair coins. Bursts of blocks that come at the same time are not
//! covered: what is random then is the number of bursts.
//!
//! # All stacks at once
//!
//! M is the number of stacks of which a sample arrived or departed. Each of them has its bounds at
//! the confidence 1 − α/M (C. E. Bonferroni's inequality). Given how many samples each stack has, M
//! is fixed, and only coming or going is random. So all bounds hold at once with a probability of
//! at least 1 − α. A stack without a sample that arrived or departed is never listed.

use super::difference::ends_of_difference;
use super::{Confidence, Estimate, Moments, Sample, Side, weighted};

/// Replaces π for a sample that is an event of a Poisson process: so small that 1 − π is 1.
const POISSON_INCLUSION: f64 = 1e-12;

/// Sampled blocks that arrived, or that departed. Sums of disjoint sets add.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turnover {
    /// Number of samples.
    pub samples: u64,
    /// Σw, bytes.
    pub sum: f64,
    /// Σw²
    pub squares: f64,
    /// The largest w.
    pub largest: f64,
}

impl Turnover {
    /// Adds a sampled block.
    pub fn add_sample(&mut self, sample: &Sample) {
        self.add_weight(sample.bytes());
    }

    /// Adds a sampled block by what it stands for, bytes.
    pub fn add_weight(&mut self, weight: f64) {
        self.add(&Turnover { samples: 1, sum: weight, squares: weight * weight, largest: weight });
    }

    /// Adds a disjoint set.
    pub fn add(&mut self, other: &Turnover) {
        self.samples += other.samples;
        self.sum += other.sum;
        self.squares += other.squares;
        self.largest = self.largest.max(other.largest);
    }

    fn side(&self, unseen_bytes: f64) -> Side {
        let seen = self.sum > 0.0;
        let moments = Moments {
            samples: if seen { self.samples } else { 0 },
            sum: self.sum,
            variance: self.squares,
            largest: self.largest,
            largest_inclusion: if seen { POISSON_INCLUSION } else { 1.0 },
            own: 0.0,
        };
        Side { moments, interval_bytes: unseen_bytes, unseen: unseen_bytes, scale: 1.0 }
    }
}

/// A growth in bytes, negative if less is held. `low ≤ value ≤ high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The unbiased estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The growth by `arrived` − `departed`. `unseen_bytes` is the most that goes unseen per unit of
/// hazard, the sampling interval in bytes.
///
/// `unseen_bytes` sets the ends, at ±`unseen_bytes`·ln(2/α), only if neither side has a sample.
pub fn growth(
    departed: &Turnover,
    arrived: &Turnover,
    unseen_bytes: f64,
    confidence: Confidence,
) -> Growth {
    let value = arrived.sum - departed.sum;
    let [low, high] =
        ends_of_difference(&departed.side(unseen_bytes), &arrived.side(unseen_bytes), confidence);
    Growth { value, low: low.min(value), high: high.max(value) }
}

/// The bytes of `blocks`, which were held at one time, with the interval of this one number.
/// `unseen_bytes` is as in [`growth`].
///
/// Allocations count as chance, as in [`growth`]. So the interval is at least as wide as that of a
/// live profile.
pub fn held(blocks: &Turnover, unseen_bytes: f64, confidence: Confidence) -> Estimate {
    weighted(&blocks.side(unseen_bytes).moments, unseen_bytes, confidence)
}

/// The confidence of each of `stacks` intervals that must hold at once with `confidence`
/// ([`mod@self`]).
pub fn each_of(stacks: usize, confidence: Confidence) -> Confidence {
    let alpha = confidence.alpha() / stacks.max(1) as f64;
    // No profile has so many stacks that this rounds to 1.
    Confidence::new(1.0 - alpha).unwrap_or(confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(samples: u64, weight: f64) -> Turnover {
        let n = samples as f64;
        Turnover {
            samples,
            sum: n * weight,
            squares: n * weight * weight,
            largest: if samples > 0 { weight } else { 0.0 },
        }
    }

    fn of(departed: u64, arrived: u64) -> Growth {
        growth(&events(departed, 1e6), &events(arrived, 1e6), 1.0, Confidence::DEFAULT)
    }

    #[test]
    fn only_one_sided_turnover_is_significant_growth() {
        assert!(of(0, 8).low > 0.0 && of(8, 0).high < 0.0);
        for (departed, arrived) in [(0, 4), (40, 45), (100, 100), (3, 9), (1000, 1060)] {
            let growth = of(departed, arrived);
            assert!(
                growth.low < 0.0 && growth.high > growth.value,
                "{departed} {arrived}: {growth:?}"
            );
        }
        // Many samples give nearly the interval of the normal approximation.
        let many = of(10_000, 11_000);
        let half = 1.96 * 21_000f64.sqrt() * 1e6;
        assert!(((many.value - many.low) / half - 1.0).abs() < 0.05, "{many:?} {half}");
        assert!((many.value - 1e9).abs() < 1.0);
    }

    #[test]
    fn growth_is_symmetric_in_allocations_and_frees() {
        for (departed, arrived) in [(0, 5), (3, 10), (20, 21)] {
            let (one, other) = (of(departed, arrived), of(arrived, departed));
            assert_eq!(one.value, -other.value);
            assert!((one.low + other.high).abs() < 1.0 && (one.high + other.low).abs() < 1.0);
        }
    }

    #[test]
    fn three_certain_samples_are_not_significant_growth() {
        // Three blocks of which nothing is unseen: it happened, and it is no trend.
        assert!(of(0, 3).low < 0.0);
    }

    #[test]
    fn growth_without_samples_has_the_bounds_of_the_unseen() {
        let none = Turnover::default();
        let growth = growth(&none, &none, 1000.0, Confidence::DEFAULT);
        assert_eq!(growth.value, 0.0);
        assert!((growth.high / (1000.0 * 40f64.ln()) - 1.0).abs() < 1e-9, "{growth:?}");
        assert!((growth.low + growth.high).abs() < 1e-9, "{growth:?}");
    }

    #[test]
    fn significance_needs_more_samples_with_more_stacks() {
        let needed = |stacks| {
            let confidence = each_of(stacks, Confidence::DEFAULT);
            (1..)
                .find(|n| growth(&events(0, 1.0), &events(*n, 1.0), 1.0, confidence).low > 0.0)
                .unwrap()
        };
        let counts = [1, 100, 10_000].map(needed);
        assert_eq!(counts, [6, 12, 19]);
    }
}
