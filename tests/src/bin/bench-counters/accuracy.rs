//! Errors of the scalable counter, by the switch-over and by the count.
//!
//! One thread measures them: the error does not depend on the number of threads, as a test shows.

use crate::cases::Bits;
use sampler_common::counting::{Counter, Scalable, Switch, Worker};
use std::sync::atomic::AtomicU64;

/// Events of the sweep over switch-overs. The count is a third into an octave, where the error is
/// largest.
const SWEEP_EVENTS: u64 = (1 << 18) / 3 * 4;
/// Additions in the sweep with bytes.
const ADDITIONS: u64 = 100_000;
/// Sizes of an everyday program's allocations.
const SIZES: [u64; 7] = [16, 24, 32, 100, 333, 4096, 65_537];

/// The error at one count.
pub(crate) struct Error {
    /// The kind of measurement.
    pub(crate) what: What,
    /// The switch-over.
    pub(crate) switch: Switch,
    /// True count.
    pub(crate) truth: f64,
    /// 5 %, mean and 95 % of the counted values, divided by the true count.
    pub(crate) share: [f64; 3],
    /// Least and largest counted value, divided by the true count.
    pub(crate) extremes: [f64; 2],
    /// Relative standard deviation by the formula (for bytes: its upper bound).
    pub(crate) formula: f64,
}

/// The kind of an error measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Single events, every switch-over.
    Sweep,
    /// Bytes, every switch-over.
    Bytes,
    /// Single events at the default switch-over, up to the largest count.
    Count,
}

/// Measures all errors, from `repetitions` counters each.
pub(crate) fn measure(repetitions: u32, seed: u64) -> Vec<Error> {
    let switches = (Switch::MIN_LOG2..=Switch::MAX_LOG2).filter_map(Switch::at);
    let mut errors = Vec::new();
    for switch in switches {
        errors.push(error(What::Sweep, switch, SWEEP_EVENTS, repetitions, seed));
        errors.push(error(What::Bytes, switch, ADDITIONS, repetitions, seed));
    }
    // Thirds of octaves up to 2^18 show the dents of the curve.
    for third in 36..=54 {
        let events = 2f64.powf(f64::from(third) / 3.0).round() as u64;
        errors.push(error(What::Count, Switch::DEFAULT, events, repetitions, seed));
    }
    errors
}

fn error(what: What, switch: Switch, additions: u64, repetitions: u32, seed: u64) -> Error {
    let amount = |index: u64| match what {
        What::Bytes => SIZES[index as usize % SIZES.len()],
        What::Sweep | What::Count => 1,
    };
    let truth: u64 = (0..additions).map(amount).sum();
    let run = |repetition: u32| {
        let counter = Scalable { word: AtomicU64::new(0), switch };
        let random = Bits(fastrand::Rng::with_seed(seed << 32 | u64::from(repetition)));
        let mut worker = Worker { number: 0, random };
        (0..additions).for_each(|index| counter.add(amount(index), &mut worker));
        counter.value() as f64 / truth as f64
    };
    let shares: Vec<f64> = (0..repetitions).map(run).collect();
    let variance = match what {
        What::Bytes => switch.largest_variance(truth as f64),
        What::Sweep | What::Count => switch.variance(truth),
    };
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = shares.iter().copied().fold(0.0, f64::max);
    Error {
        what,
        switch,
        truth: truth as f64,
        share: band(shares),
        extremes: [least, largest],
        formula: variance.sqrt() / truth as f64,
    }
}

/// 5 %, mean, 95 %; NaN without values.
pub(crate) fn band(values: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let at = |q: f64| {
        let index = (q * values.len().saturating_sub(1) as f64).round() as usize;
        values.get(index).copied().unwrap_or(f64::NAN)
    };
    [at(0.05), values.iter().sum::<f64>() / values.len() as f64, at(0.95)]
}
