//! The ratio of two totals of the same sampled blocks, for example usable bytes to requested bytes.
//!
//! Plainly: each sampled block stands for w = 1/π blocks like it, so Σw·u estimates all usable
//! bytes and Σw·s all requested bytes. Their ratio is better than either sum, for a missing block
//! is missing in both.
//!
//! Small blocks are hardly ever sampled and have the largest ratios, so the samples do not cover
//! them all. Blocks without any sample have Σπ ≤ ln(2/α) with probability 1 − α/2. Each has π ≥ 1/R
//! and wastes at most c bytes (24 of glibc's smallest block), so together they waste at most
//! c·R·ln(2/α). The upper end has room for this waste. If the room were more than a twentieth of
//! the requested bytes, there is no ratio.
//!
//! r = Σw·u/Σw·s, v = Σw²(1−π)(u − r·s)²/(Σw·s)²; the interval is r ± t·√v with Student's t of n−1
//! degrees of freedom. Source: C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey
//! Sampling" (1992), section 5.6, with independent trials.

use super::Confidence;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Most bytes that the allocator adds to a request.
const MAX_WASTED: f64 = 24.0;
/// Largest room for what was not seen, as a share of the requested bytes.
const MAX_UNSEEN: f64 = 0.05;

/// Fewer samples give no ratio: the interval could not be trusted.
const MIN_SAMPLES: u64 = 30;

/// Sums over samples, from which the ratio is computed. Sums of disjoint sets add.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RatioSums {
    samples: u64,
    /// Σw·u and Σw·s.
    above: f64,
    below: f64,
    /// Σw²(1−π) of u², u·s and s².
    squares: [f64; 3],
    /// Largest mean number of bytes between samples.
    interval: f64,
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Samples behind the ratio.
    pub samples: u64,
}

impl RatioSums {
    /// Adds a sample of `above` and `below` that had inclusion probability `inclusion`. A sample
    /// with a probability outside (0, 1] stands for itself only.
    pub fn add_sample(&mut self, above: f64, below: f64, inclusion: f64) {
        let inclusion = if inclusion > 0.0 && inclusion < 1.0 { inclusion } else { 1.0 };
        let weight = 1.0 / inclusion;
        let spread = weight * weight * (1.0 - inclusion);
        self.add(&RatioSums {
            samples: 1,
            above: weight * above,
            below: weight * below,
            squares: [above * above, above * below, below * below].map(|of| spread * of),
            interval: if inclusion < 1.0 { -below / (-inclusion).ln_1p() } else { 0.0 },
        });
    }

    /// Adds the sums of a disjoint set.
    pub fn add(&mut self, other: &RatioSums) {
        self.samples += other.samples;
        self.above += other.above;
        self.below += other.below;
        self.interval = self.interval.max(other.interval);
        self.squares.iter_mut().zip(other.squares).for_each(|(sum, of)| *sum += of);
    }

    /// The ratio, never below `least`. `None` with fewer than 30 samples, with nothing below, or if
    /// too much may be unseen.
    pub fn ratio(&self, least: f64, confidence: Confidence) -> Option<Ratio> {
        if self.samples < MIN_SAMPLES || self.below <= 0.0 {
            return None;
        }
        let value = self.above / self.below;
        let [uu, us, ss] = self.squares;
        // Rounding must not make the variance negative.
        let variance = (uu - 2.0 * value * us + value * value * ss).max(0.0);
        let deviation = variance.sqrt() / self.below;
        let student = StudentsT::new(0.0, 1.0, (self.samples - 1) as f64).ok()?;
        let room = MAX_WASTED * self.interval * (2.0 / confidence.alpha()).ln() / self.below;
        if room > MAX_UNSEEN {
            return None;
        }
        let half = student.inverse_cdf(1.0 - confidence.alpha() / 2.0) * deviation;
        let value = value.max(least);
        Some(Ratio {
            value,
            low: (value - half).max(least),
            high: value + half + room,
            samples: self.samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_have_no_interval_and_sums_add() {
        let mut sums = RatioSums::default();
        for _ in 0..MIN_SAMPLES - 1 {
            sums.add_sample(24.0, 16.0, 0.5);
        }
        assert_eq!(sums.ratio(1.0, Confidence::DEFAULT), None);
        let mut twice = sums;
        twice.add(&sums);
        assert_eq!(twice.ratio(1.0, Confidence::DEFAULT), None, "as much may be unseen");
        // All blocks are alike and certain, so the ratio is certain too, however few were seen.
        let mut certain = RatioSums::default();
        (0..MIN_SAMPLES).for_each(|_| certain.add_sample(24.0, 16.0, 1.0));
        let ratio = certain.ratio(1.0, Confidence::DEFAULT).unwrap();
        assert!((ratio.value - 1.5).abs() < 1e-12 && ratio.high - ratio.low < 1e-6, "{ratio:?}");
        let mut nothing = RatioSums::default();
        (0..50).for_each(|_| nothing.add_sample(24.0, 0.0, 0.5));
        assert_eq!(nothing.ratio(1.0, Confidence::DEFAULT), None);
    }
}
