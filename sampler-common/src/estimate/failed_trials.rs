//! The failed-trials estimator.
//!
//! Plainly: every byte is a trial that hits with probability p = 1/R. A sample says where in its
//! allocation the hit fell. The bytes behind the hit are no trials. So every byte is either a
//! failed trial, or belongs to the tail of a sample. There are on average q/p failed trials before
//! each hit:
//!
//! ```text
//! estimate = s·q/p + u        u = Σ (size − offset of the hit), q = 1 − p, s samples
//! ```
//!
//! u counts the hit itself and the bytes behind it, whose trials were skipped. Source: "Randomized
//! Allocation Sampling", design document of the .NET runtime, its second approach. The estimate is
//! unbiased. Its variance s·q/p² is that of the weighted estimate for one-byte allocations and
//! larger for other sizes. In return its distribution is known for any sizes. With a geometric
//! countdown (and only with it), the number of failed trials before the s-th hit is negative
//! binomial.
//!
//! # Interval
//!
//! ```text
//! CDF(k; s) = P(at most k failures before the s-th hit) = I_p(s, k + 1)
//! low  = k(α/2)     + u        k(c) = the smallest k ≥ 0 with CDF(k) ≥ c
//! high = k(1 − α/2) + u
//! ```
//!
//! with the regularized incomplete beta function I (DLMF 8.17). The .NET document does not say
//! which whole number is meant by "closest to" c. Its table has in all 50 places the number
//! k(c) − 1: the largest number whose CDF is still *below* c. A bisection that keeps its lower end
//! stops there; so does the solution of I_p(s, x + 1) = c over real x, rounded down. Here k(c) is
//! the quantile in its usual sense (scipy's `nbinom.ppf`), so that P(failures ≤ k(c)) reaches c.
//!
//! # Samples of different intervals
//!
//! Sums Σ(R − 1) and ΣR(R − 1) over the samples ([`super::trials`]) have the mean and variance of
//!
//! ```text
//! R_eff = ΣR(R − 1)/Σ(R − 1),   s_eff = Σ(R − 1)/(R_eff − 1) = (Σ(R − 1))²/Σ(R − 1)²
//! ```
//!
//! negative binomial samples. If all R are equal, these are s and R; otherwise an effective number
//! of samples (Kish's) and an effective interval. A sum over different intervals is only
//! approximately negative binomial. If s_eff is no whole number, the bounds are quantiles of the
//! gamma distribution of that mean and variance. That is the limit as R grows, and off by about 1/R
//! of a standard deviation.
//!
//! # Edges
//!
//! This law holds if the measured stretch begins anywhere and ends with the s-th hit. See [`Edges`]
//! for other stretches. Countdowns of several CPUs or threads are memoryless: pool their samples
//! first and widen for the edges once.

mod changed;
mod negative_binomial;

pub(super) use self::changed::widened;
use self::negative_binomial::{NegativeBinomial, probability_of_at_most};
use super::domain::{DomainError, MAX_BYTES, MAX_TRIALS, fractional_interval};
use super::{Confidence, Estimate, Method, Trials};

/// Where the measured stretch begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edges {
    /// The stretch ends with its last sample: both bounds of s samples. For a window with a fixed
    /// end these bounds are too low (84 % instead of 95 % at 2 expected samples).
    Aligned,
    /// The stretch ends at any time, as every profile does. The failures lie between those before
    /// the s-th hit and those before the next hit. So low is that of s samples and high that of
    /// s + 1. Covers at least the requested confidence.
    Window,
    /// The .NET document's rule for windows that do not begin at a sample either: low of s − 1
    /// samples and high of s + 1. Safe, but wider than necessary, because a memoryless countdown
    /// has no begin.
    Conservative,
}

impl Edges {
    /// Samples for the lower and for the upper bound.
    pub fn samples(self, samples: u64) -> (u64, u64) {
        match self {
            Edges::Aligned => (samples, samples),
            Edges::Window => (samples, samples.saturating_add(1)),
            Edges::Conservative => (samples.saturating_sub(1), samples.saturating_add(1)),
        }
    }

    /// Samples for both bounds, for a number that may have a fraction.
    fn around(self, samples: f64) -> (f64, f64) {
        match self {
            Edges::Aligned => (samples, samples),
            Edges::Window => (samples, samples + 1.0),
            Edges::Conservative => ((samples - 1.0).max(0.0), samples + 1.0),
        }
    }
}

/// Estimated bytes, s·q/p + u, with their negative binomial interval.
///
/// `samples` is s. `tail_bytes` is u, the hits and the bytes behind them; it is at least s, but 0
/// is allowed and gives the failed trials alone. `interval_bytes` is R = 1/p.
///
/// At confidences below 27 % a quantile may lie on the wrong side of the mean; the interval then
/// ends at the estimate. Bounds above 2^53 are rounded.
///
/// # Errors
///
/// An interval outside 1 … 2^32, more than 2^63 tail bytes, samples × interval above 2^60, and 0
/// samples with [`Edges::Aligned`].
pub fn failed_trials(
    samples: u64,
    tail_bytes: u64,
    interval_bytes: f64,
    edges: Edges,
    confidence: Confidence,
) -> Result<Estimate, DomainError> {
    let interval = fractional_interval(interval_bytes)?;
    if tail_bytes > MAX_BYTES {
        return Err(DomainError::TailBytes(tail_bytes));
    }
    if edges == Edges::Aligned && samples == 0 {
        return Err(DomainError::NoSamples);
    }
    check_samples(edges.samples(samples).1, interval)?;
    let trials = Trials {
        failures: samples as f64 * (interval - 1.0),
        variance: samples as f64 * (interval - 1.0) * interval,
        tail: tail_bytes as f64,
    };
    let distribution = NegativeBinomial { samples: samples as f64, interval };
    Ok(distribution.estimate(&trials, samples, edges, confidence))
}

/// Estimated bytes of summed [`Trials`], Σ(R − 1) + Σu, of `samples` samples at intervals that may
/// differ.
///
/// Exact if all intervals are equal; else by the gamma distribution of the same mean and variance
/// ([`mod@self`]). Without failures the next hit is that of `interval_bytes`, the longest interval
/// that was active; at 1 there is no next hit. Without a sample [`Edges::Aligned`] has no end and
/// closes on the value.
pub fn of_trials(
    trials: &Trials,
    samples: u64,
    interval_bytes: f64,
    edges: Edges,
    confidence: Confidence,
) -> Estimate {
    let distribution = NegativeBinomial::matching(trials)
        .unwrap_or(NegativeBinomial { samples: 0.0, interval: interval_bytes });
    distribution.estimate(trials, samples, edges, confidence)
}

/// The interval of failed trials around another estimate of the same bytes, the weighted one, with
/// the same relative width.
///
/// The .NET document suggests it as a conservative interval, since the weighted estimate varies no
/// more than failed trials. If the failed trials are 0, the bounds are those of the failed trials.
pub fn around(weighted: &Estimate, failed_trials: &Estimate) -> Estimate {
    let scale = weighted.value / failed_trials.value;
    let scale = if scale > 0.0 && scale.is_finite() { scale } else { 1.0 };
    Estimate {
        low: (failed_trials.low * scale).min(weighted.value),
        high: (failed_trials.high * scale).max(weighted.value),
        method: Method::FailedTrials,
        ..*weighted
    }
}

/// Probability of at most `failures` failed trials before `samples` hits; 1 for no sample.
///
/// # Errors
///
/// An interval outside 1 … 2^32, more than 2^60 failures, or samples × interval above 2^60.
pub fn cumulative(failures: u64, samples: u64, interval_bytes: f64) -> Result<f64, DomainError> {
    let interval = fractional_interval(interval_bytes)?;
    check_samples(samples, interval)?;
    if failures > MAX_TRIALS {
        return Err(DomainError::Bytes(failures));
    }
    Ok(probability_of_at_most(failures, samples as f64, interval))
}

fn check_samples(samples: u64, interval: f64) -> Result<(), DomainError> {
    if samples as f64 * interval <= MAX_TRIALS as f64 {
        Ok(())
    } else {
        Err(DomainError::Samples(samples))
    }
}
