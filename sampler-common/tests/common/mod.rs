//! A seeded generator and bounds for the statistical tests. Each bound fails by chance less than
//! once in a million runs. (Seeds are fixed, so a test fails always or never. The bound is the
//! probability for a new seed.)
#![allow(dead_code, reason = "each test binary uses its own part")]

use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE};
use sampler_common::sampling::{Cell, Random};
use std::cell::Cell as Slot;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone)]
pub(crate) struct SplitMix(pub(crate) u64);

impl Random for SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A cell of one thread, which starts at 0.
#[derive(Default)]
pub(crate) struct Local(pub(crate) Slot<i64>);

impl Local {
    pub(crate) fn value(&self) -> i64 {
        self.0.get()
    }
}

impl Cell for Local {
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.0.replace(self.0.get().wrapping_sub(amount))
    }

    fn swap(&self, value: i64) -> i64 {
        self.0.replace(value)
    }
}

impl SplitMix {
    /// Uniform in (0, 1].
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// Uniform below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }
}

/// The probability that a charge of `hazard` is sampled.
pub(crate) fn inclusion(hazard: u64) -> f64 {
    if hazard >= HAZARD_CERTAIN { 1.0 } else { -(-(hazard as f64) / HAZARD_ONE as f64).exp_m1() }
}

/// Difference of `hits` of `trials` from probability `p`, in standard deviations.
pub(crate) fn deviations(hits: u64, trials: u64, p: f64) -> f64 {
    let n = trials as f64;
    (hits as f64 - n * p) / (n * p * (1.0 - p)).sqrt()
}

/// √n times the Kolmogorov–Smirnov distance of `values` from the uniform distribution on (0, 1).
pub(crate) fn kolmogorov_smirnov(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    let mut distance = 0.0f64;
    for (index, value) in values.iter().enumerate() {
        distance = distance.max(value - index as f64 / n).max((index as f64 + 1.0) / n - value);
    }
    distance * n.sqrt()
}

/// The limit of [`kolmogorov_smirnov`] at 10⁻⁶: 2·exp(−2x²) = 10⁻⁶.
pub(crate) const KS_LIMIT: f64 = 2.69;
