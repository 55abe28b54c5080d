//! The number of bytes that a sampled allocation stands for.
//!
//! ```text
//! w = s/π,  π = 1 − e^(−λs)
//! ```
//!
//! (OpenTelemetry eBPF profiler, design document 00003; λ is the hazard per byte that was charged.)
//! The probe's argument is a whole number, and w is not. So w is rounded up with the probability of
//! its fraction, and the mean is w.

use crate::float::undisturbed;
use sampler_common::sampling::Rate;
use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE};

/// Terms of the series below ½: the next term is smaller than 2⁻⁶⁴ of the first.
const SERIES_TERMS: u32 = 16;
/// Hazard below which `TERMS_OF_SMALL` terms are enough. Nearly all samples are of such blocks,
/// which are small compared with the interval.
const SMALL_HAZARD: f64 = 1.0 / 4096.0;
const TERMS_OF_SMALL: u32 = 5;

/// Bytes that a sample of `size` bytes at `rate` stands for; `random` decides the rounding. At
/// least `size`.
pub fn weighted(size: u64, rate: Rate, random: u64) -> u64 {
    undisturbed(rounded, [size, rate.raw(), random])
}

extern "C" fn rounded(size: u64, rate: u64, random: u64) -> u64 {
    let hazard = Rate::from_raw(rate).charge(size);
    if hazard == HAZARD_CERTAIN || hazard == 0 {
        return size;
    }
    let exact = size as f64 / inclusion(hazard as f64 / HAZARD_ONE as f64);
    let whole = exact as u64;
    let fraction = exact - whole as f64;
    // 53 of the bits, as many as a fraction has.
    let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
    whole.saturating_add(u64::from(uniform < fraction)).max(size)
}

/// 1 − e^(−x) for 0 < x ≤ 64: the series below ½, and from there
/// 1 − e^(−2y) = q(2 − q), q = 1 − e^(−y).
fn inclusion(x: f64) -> f64 {
    let mut halved = x;
    let mut doublings = 0;
    while halved >= 0.5 && doublings < 8 {
        halved *= 0.5;
        doublings += 1;
    }
    // x − x²/2! + x³/3! − …
    let mut nested = 1.0;
    let mut term = if halved < SMALL_HAZARD { TERMS_OF_SMALL } else { SERIES_TERMS };
    while term >= 2 {
        nested = 1.0 - halved / f64::from(term) * nested;
        term -= 1;
    }
    let mut included = halved * nested;
    while doublings > 0 {
        included *= 2.0 - included;
        doublings -= 1;
    }
    included
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inclusion_agrees_with_the_exponential() {
        let mut x = 1e-9f64;
        while x < 64.0 {
            let exact = -(-x).exp_m1();
            assert!((inclusion(x) / exact - 1.0).abs() < 1e-14, "{x}");
            x *= 1.01;
        }
    }

    #[test]
    fn weights_are_those_of_the_contract() {
        for interval in [2u64, 64, 4096, 512 << 10, 1 << 32] {
            let rate = Rate::from_interval(interval).unwrap();
            for size in [1u64, 16, 48, 4096, 1 << 20, 1 << 33] {
                let exact = size as f64 / rate.inclusion(size);
                let (low, high) = (weighted(size, rate, u64::MAX), weighted(size, rate, 0));
                assert!(low <= high && high - low <= 1 && low >= size, "{size} at {interval}");
                let tolerance = exact * 1e-12;
                assert!(low as f64 <= exact + tolerance && high as f64 >= exact - tolerance);
            }
        }
        assert_eq!(weighted(48, Rate::ALWAYS, 0), 48);
    }

    /// The mean of the rounded weights is the weight: over a grid of random numbers, to within the
    /// grid's step.
    #[test]
    fn rounding_has_no_bias() {
        let rate = Rate::from_interval(64).unwrap();
        for size in [1u64, 7, 40, 100] {
            let steps = 1u64 << 16;
            let sum: u64 = (0..steps).map(|step| weighted(size, rate, step << 48)).sum();
            let exact = size as f64 / rate.inclusion(size);
            assert!((sum as f64 / steps as f64 - exact).abs() < 2.0 / steps as f64, "{size}");
        }
    }
}
