//! Checks whether estimates are as precise as they claim: pools many runs against known truths.
//!
//! Allocations are sampled independently: a memoryless countdown is a Bernoulli trial per byte.
//! The estimate Σ sI/π therefore has mean Σs, variance V = Σ s²(1−π)/π and fourth cumulant
//! K = Σ s⁴(1−π)(1−6π(1−π))/π³. All three are known from the true sizes (`workloads/protocol.h`).
//!
//! * Estimates: with z = (estimate − truth)/√V, E z² = 1 and Var z² = 2 + K/V². Over k independent
//!   comparisons Σz² has mean k and variance 2k + ΣK/V². For normal z the sum is χ²(k). The excess
//!   kurtosis K/V² ≈ 1/(expected samples) widens the distribution. The scaled χ² with
//!   the same mean and variance accounts for that: (k/ν)·χ²(ν), ν = 2k²/(2k + ΣK/V²)
//!   (Satterthwaite 1946). Only comparisons with [`ENOUGH_SAMPLES`] expected samples enter,
//!   so ν is within 1 % of k.
//! * Reported variances v = Σ w²(1−π)I: E v = V and Var v = Σ s⁴(1−π)³/π³ = W. D = Σ(v/V − 1) over
//!   √ΣW/V² is near standard normal.
//! * Rows of different functions of a run are independent (disjoint allocations). Allocated
//!   and live bytes of one function are not independent, and are pooled apart.

use anyhow::{Result, ensure};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

/// Probability that a right estimator fails one pooled test.
pub const FALSE_ALARM: f64 = 1e-7;

/// Expected samples below which a comparison stays out of the pooled tests.
pub const ENOUGH_SAMPLES: f64 = 200.0;

/// One estimate with its truth.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was estimated and where, for messages.
    pub name: String,
    /// The estimate.
    pub estimate: f64,
    /// The variance that the estimate reports.
    pub reported_variance: f64,
    /// The estimate that unbiases the sum (a negative control): own bytes and samples are summed
    /// first.
    pub sum_then_unbias: f64,
    /// The truth.
    pub truth: f64,
    /// Expected number of samples.
    pub expected: f64,
    /// V, the variance of the estimate.
    pub variance: f64,
    /// K, the fourth cumulant of the estimate.
    pub cumulant: f64,
    /// W, the variance of the reported variance.
    pub variance_of_variance: f64,
}

/// Σ(estimate − truth)²/V against its limits.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// The statistic.
    pub statistic: f64,
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

impl Pooled {
    /// Whether the statistic lies inside its limits.
    pub fn passes(&self) -> bool {
        self.low < self.statistic && self.statistic < self.high
    }

    /// Fails with the numbers if the statistic is outside its limits.
    pub fn check(&self, what: &str) -> Result<()> {
        ensure!(self.passes(), "{what}: {self:?}");
        Ok(())
    }
}

/// The comparisons that have enough expected samples for the pooled tests.
pub fn fit(all: &[Comparison]) -> Vec<Comparison> {
    all.iter().filter(|c| c.expected >= ENOUGH_SAMPLES).cloned().collect()
}

/// Pools (estimate − truth)²/V.
pub fn chi_squared(comparisons: &[Comparison]) -> Result<Pooled> {
    ensure!(!comparisons.is_empty(), "nothing to pool");
    let k = comparisons.len() as f64;
    let statistic = comparisons.iter().map(|c| (c.estimate - c.truth).powi(2) / c.variance).sum();
    let kurtosis: f64 = comparisons.iter().map(|c| c.cumulant / c.variance.powi(2)).sum();
    let degrees = 2.0 * k * k / (2.0 * k + kurtosis);
    let limit = ChiSquared::new(degrees)?;
    let scale = k / degrees;
    Ok(Pooled {
        statistic,
        low: scale * limit.inverse_cdf(FALSE_ALARM / 2.0),
        high: scale * limit.inverse_cdf(1.0 - FALSE_ALARM / 2.0),
    })
}

/// Pools (reported variance / V − 1) into a standard normal.
pub fn reported_variance(comparisons: &[Comparison]) -> Result<Pooled> {
    ensure!(!comparisons.is_empty(), "nothing to pool");
    let sum: f64 = comparisons.iter().map(|c| c.reported_variance / c.variance - 1.0).sum();
    let variance_of_variance: f64 =
        comparisons.iter().map(|c| c.variance_of_variance / c.variance.powi(2)).sum();
    let high = Normal::standard().inverse_cdf(1.0 - FALSE_ALARM / 2.0);
    Ok(Pooled { statistic: sum / variance_of_variance.sqrt(), low: -high, high })
}

/// Bytes estimated by the wrong order of operations: n samples of `own` bytes together, unbiased as
/// if all had the mean size (as pprof's legacy heap scaling does).
pub fn sum_then_unbias(samples: u64, own: f64, interval_bytes: f64) -> f64 {
    if samples == 0 || own == 0.0 {
        return 0.0;
    }
    let mean = own / samples as f64;
    own / -(mean * (-1.0 / interval_bytes).ln_1p()).exp_m1()
}

/// Checks that the pooled tests pass, and that each wrong estimator fails them on the same data.
pub fn judge(what: &str, all: &[Comparison]) -> Result<()> {
    let data = fit(all);
    ensure!(data.len() >= 20, "{what}: only {} comparisons are fit to be pooled", data.len());
    let pooled = chi_squared(&data)?;
    let variances = reported_variance(&data)?;
    println!("{what}: {} comparisons, estimates {pooled:?}, variances {variances:?}", data.len());
    pooled.check(&format!("{what}: estimates"))?;
    variances.check(&format!("{what}: reported variances"))?;

    let changed = |change: fn(&mut Comparison)| {
        let mut data = data.clone();
        data.iter_mut().for_each(change);
        data
    };
    let heavier = changed(|c| c.estimate *= 1.1);
    let summed = changed(|c| c.estimate = c.sum_then_unbias);
    for (control, data) in [("weights times 1.1", heavier), ("sum, then unbias", summed)] {
        let pooled = chi_squared(&data)?;
        ensure!(!pooled.passes(), "{what}: control `{control}` passes: {pooled:?}");
    }
    // A wrong width must fail the test of reported variances, and the test of estimates if the
    // width is used there.
    let twice = changed(|c| c.reported_variance *= 2.0);
    let half = changed(|c| c.reported_variance *= 0.5);
    for (control, data) in [("variance times 2", twice), ("variance times 1/2", half)] {
        let pooled = reported_variance(&data)?;
        ensure!(!pooled.passes(), "{what}: control `{control}` passes: {pooled:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// splitmix64, uniform in (0, 1).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A run of an ideal sampler over mixed sizes.
    fn ideal(state: &mut u64) -> Comparison {
        let interval: f64 = 65536.0;
        let mut c = Comparison {
            name: String::new(),
            estimate: 0.0,
            reported_variance: 0.0,
            sum_then_unbias: 0.0,
            truth: 0.0,
            expected: 0.0,
            variance: 0.0,
            cumulant: 0.0,
            variance_of_variance: 0.0,
        };
        let (mut samples, mut own) = (0, 0.0);
        for i in 0..4000 {
            let s = f64::from(64u32 << (i % 14));
            let q = (s * (-1.0 / interval).ln_1p()).exp();
            let pi = 1.0 - q;
            c.truth += s;
            c.expected += pi;
            c.variance += s * s * q / pi;
            c.cumulant += s.powi(4) * q * (1.0 - 6.0 * pi * q) / pi.powi(3);
            c.variance_of_variance += (s * s * q / pi).powi(2) * q / pi;
            if uniform(state) < pi {
                c.estimate += s / pi;
                c.reported_variance += (s / pi).powi(2) * q;
                samples += 1;
                own += s;
            }
        }
        c.sum_then_unbias = sum_then_unbias(samples, own, interval);
        c
    }

    #[test]
    fn an_ideal_sampler_passes_and_the_controls_fail() {
        let mut state = 7;
        let data: Vec<_> = (0..100).map(|_| ideal(&mut state)).collect();
        judge("ideal", &data).unwrap();
    }

    #[test]
    fn each_wrong_estimator_is_caught() {
        let mut state = 11;
        let data: Vec<_> = (0..100).map(|_| ideal(&mut state)).collect();
        let wrong = |change: fn(&mut Comparison)| {
            let mut data = data.clone();
            data.iter_mut().for_each(change);
            judge("wrong", &data).is_err()
        };
        assert!(wrong(|c| c.estimate *= 1.1));
        assert!(wrong(|c| c.estimate = c.sum_then_unbias));
        assert!(wrong(|c| c.reported_variance *= 2.0));
        assert!(wrong(|c| c.reported_variance *= 0.5));
    }
}
