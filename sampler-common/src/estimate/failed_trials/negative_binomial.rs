//! The negative binomial law of failed trials, and its quantiles: an exact search that begins at
//! the quantiles of the gamma distribution.

use super::Edges;
use crate::estimate::binomial::Binomial;
use crate::estimate::domain::MAX_TRIALS;
use crate::estimate::gamma::{Tail, quantile};
use crate::estimate::{Confidence, Estimate, Method, Trials};

/// With more samples, the series of the incomplete beta function is too long. The bounds then come
/// from the gamma distribution, less than 10⁻⁴ standard deviations off.
const MAX_SERIES_SAMPLES: f64 = 1e7;

/// A negative binomial law: failed trials before a number of hits.
#[derive(Clone, Copy, Debug)]
pub(super) struct NegativeBinomial {
    /// s, which may have a fraction.
    pub(super) samples: f64,
    /// R = 1/p.
    pub(super) interval: f64,
}

impl NegativeBinomial {
    /// The law of the same mean and variance; `None` without failures.
    pub(super) fn matching(trials: &Trials) -> Option<NegativeBinomial> {
        let interval = trials.variance / trials.failures;
        let samples = trials.failures / (interval - 1.0);
        // Rounding of the quotients must not turn a whole number into a fraction.
        let whole = samples.round();
        let samples = if (samples - whole).abs() < 1e-9 * whole { whole } else { samples };
        let sane = samples > 0.0 && samples.is_finite() && interval > 1.0 && interval.is_finite();
        sane.then_some(NegativeBinomial { samples, interval })
    }

    /// The estimate of `trials` under this law, from `samples` samples.
    pub(super) fn estimate(
        self,
        trials: &Trials,
        samples: u64,
        edges: Edges,
        confidence: Confidence,
    ) -> Estimate {
        let tail = confidence.alpha() / 2.0;
        let (fewer, more) = edges.around(self.samples);
        let value = trials.failures + trials.tail;
        let low = failures(fewer, self.interval, tail, Tail::Lower) + trials.tail;
        let high = failures(more, self.interval, tail, Tail::Upper) + trials.tail;
        Estimate {
            value,
            low: low.min(value),
            high: high.max(value),
            confidence,
            samples,
            method: Method::FailedTrials,
        }
    }
}

/// I_p(s, k + 1): the probability of at least s hits among k + s trials.
pub(super) fn probability_of_at_most(failures: u64, samples: f64, interval: f64) -> f64 {
    let hit = 1.0 / interval;
    let trials = failures as f64 + samples;
    Binomial { trials, hit, miss: 1.0 - hit }.at_least(samples)
}

/// The smallest number of failures whose cumulative probability reaches `tail`, or 1 − `tail`.
///
/// In three cases the gamma distribution of the same mean and variance gives the bounds: a
/// fractional number of samples (the series would take about R steps), more samples than
/// [`MAX_SERIES_SAMPLES`], and more than 2^60 trials.
fn failures(samples: f64, interval: f64, tail: f64, side: Tail) -> f64 {
    // Written so that NaN returns here too.
    if !(samples > 0.0 && interval > 1.0) {
        return 0.0;
    }
    let reached = |failures| match side {
        Tail::Lower => probability_of_at_most(failures, samples, interval) >= tail,
        Tail::Upper => 1.0 - probability_of_at_most(failures, samples, interval) <= tail,
    };
    // The gamma distribution of the same mean and variance is off by less than 0.1 % of a standard
    // deviation for the usual intervals: the search begins there.
    let mean = samples * (interval - 1.0);
    let variance = mean * interval;
    let guess = quantile(mean, variance, tail, side);
    let known = samples.fract() == 0.0 && samples <= MAX_SERIES_SAMPLES;
    if !known || samples * interval > MAX_TRIALS as f64 {
        return guess;
    }
    first(guess as u64, (variance.sqrt() / 1024.0) as u64 + 1, reached) as f64
}

/// The smallest number for which `reached` is true; `reached` is false up to some number and true
/// from there on.
fn first(guess: u64, step: u64, reached: impl Fn(u64) -> bool) -> u64 {
    // Invariant: `above` is reached; `below` is not reached or is 0.
    let (mut below, mut above, mut step) = (guess, guess, step);
    if reached(guess) {
        while below > 0 && reached(below) {
            above = below;
            below = below.saturating_sub(step);
            step = step.saturating_mul(2);
        }
        if below == 0 && reached(0) {
            return 0;
        }
    } else {
        while !reached(above) && above < u64::MAX {
            below = above;
            above = above.saturating_add(step);
            step = step.saturating_mul(2);
        }
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if reached(middle) { above = middle } else { below = middle }
    }
    above
}
