//! The weighted estimate is unbiased, and its variance is the true variance. The same checks must
//! reject estimators that are wrong by a little: weights × 1.1, sum-then-unbias, variance × 2 and ×
//! ½.

mod common;
#[path = "common/population.rs"]
mod population;

use common::SplitMix;
use population::{Population, rate};
use sampler_common::estimate::{Moments, RowMoments, Sample};
use sampler_common::sampling::{Rate, Trial, trial};

/// Bytes, as (value, variance), from the moments of a run.
type Estimator = fn(&Moments) -> (f64, f64);

const WEIGHTED: Estimator = |moments| (moments.sum, moments.variance);

/// Difference of the mean of independent runs from `expected`, in the mean's standard deviations.
fn mean_deviations(values: &[f64], expected: f64) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean - expected) / (variance / n).sqrt().max(1e-12 * expected)
}

/// The errors of the estimator over `runs` runs of `population`, from three tests at 10⁻⁷ each.
fn judge(
    population: &Population,
    estimator: Estimator,
    runs: u32,
    seed: u64,
) -> Result<(), String> {
    let mut random = SplitMix(seed);
    let (truth, variance) = (population.truth().0, population.variance());
    let (mut values, mut squares, mut claimed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let (value, reported) = estimator(&population.moments(&mut random).alloc_space);
        values.push(value);
        squares.push((value - truth).powi(2) / variance);
        claimed.push(reported / variance);
    }
    for (name, z) in [
        ("mean of the estimate", mean_deviations(&values, truth)),
        ("(estimate − truth)² over the true variance", mean_deviations(&squares, 1.0)),
        ("reported over true variance", mean_deviations(&claimed, 1.0)),
    ] {
        if z.abs() > 5.4 {
            return Err(format!("{}: {name}: {z:.1} standard deviations", population.name));
        }
    }
    Ok(())
}

#[test]
fn estimates_are_unbiased_with_the_stated_variance() {
    for population in Population::all(30.0) {
        judge(&population, WEIGHTED, 4000, 7).unwrap();
    }
}

#[test]
fn weights_ten_percent_too_large_are_detected() {
    for population in Population::all(30.0) {
        assert!(judge(&population, |m| (1.1 * m.sum, 1.21 * m.variance), 4000, 7).is_err());
    }
}

#[test]
fn variances_of_twice_and_half_are_caught() {
    for population in Population::all(30.0) {
        for estimator in
            [|m| (m.sum, 2.0 * m.variance), |m| (m.sum, 0.5 * m.variance)] as [Estimator; 2]
        {
            assert!(judge(&population, estimator, 4000, 7).is_err(), "{}", population.name);
        }
    }
}

/// Sums the samples, then unbiases the sum by their mean size, as if all blocks had one size.
#[test]
fn summing_before_unbiasing_is_caught() {
    const SUM_THEN_UNBIAS: Estimator = |moments| {
        let size = moments.own / moments.samples.max(1) as f64;
        (moments.own / rate().inclusion(size as u64), moments.variance)
    };
    let mut mixed = 0;
    for population in Population::all(30.0).iter().filter(|population| !population.uniform()) {
        mixed += 1;
        assert!(judge(population, SUM_THEN_UNBIAS, 4000, 7).is_err(), "{}", population.name);
    }
    assert_eq!(mixed, 2);
}

struct Plain(std::cell::Cell<i64>);

impl sampler_common::sampling::Cell for Plain {
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.0.replace(self.0.get().wrapping_sub(amount))
    }

    fn swap(&self, value: i64) -> i64 {
        self.0.replace(value)
    }
}

/// From the countdown to the estimate by the production code: one stream of mixed sizes whose rate
/// changes; bytes and objects.
#[test]
fn a_stream_with_changing_rates_is_unbiased() {
    let sizes = [64u64, 100, 500, 1000, 5000, 40_000, 300_000];
    let rates = [1000u64, 4096, 16 << 10, 64 << 10].map(|r| Rate::from_interval(r).unwrap());
    let rates = [rates[0], rates[1], rates[1].halved(), rates[2], rates[3]];
    const CALLS: usize = 2000;
    let (cell, mut random) = (Plain(std::cell::Cell::new(0)), SplitMix(9));
    // The program is fixed. Only the draws differ between runs.
    let mut program = SplitMix(10);
    let calls: Vec<(u64, Rate)> =
        (0..CALLS).map(|call| (sizes[program.below(7)], rates[call * 5 / CALLS])).collect();
    let bytes: f64 = calls.iter().map(|(size, _)| *size as f64).sum();
    let variance = |own: fn(u64) -> f64| -> f64 {
        let odds = |(size, rate): &(u64, Rate)| {
            let inclusion = rate.inclusion(*size);
            own(*size).powi(2) * (1.0 - inclusion) / inclusion
        };
        calls.iter().map(odds).sum()
    };
    let true_variances = [variance(|size| size as f64), variance(|_| 1.0)];
    let (mut values, mut squares) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..3000 {
        let mut row = RowMoments::default();
        for (size, rate) in &calls {
            if let Trial::Hit { .. } = trial(&cell, rate.charge(*size), &mut random) {
                row.add_allocation(&Sample::geometric(*size, *rate));
            }
        }
        let estimates = [row.alloc_space.sum, row.alloc_objects.sum];
        for (index, truth) in [bytes, CALLS as f64].into_iter().enumerate() {
            values[index].push(estimates[index]);
            squares[index].push((estimates[index] - truth).powi(2) / true_variances[index]);
        }
    }
    for (index, truth) in [bytes, CALLS as f64].into_iter().enumerate() {
        let (mean, square) =
            (mean_deviations(&values[index], truth), mean_deviations(&squares[index], 1.0));
        assert!(mean.abs() < 5.4, "quantity {index}: mean {mean}");
        assert!(square.abs() < 5.4, "quantity {index}: χ² {square}");
    }
}

/// Thinning: a held sample is kept with probability π_new/π_old and counts as charged with the new
/// rate.
#[test]
fn thinned_samples_are_unbiased() {
    let (old, sizes) = (Rate::from_interval(4096).unwrap(), [16u64, 1000, 4096, 20_000]);
    let new = old.halved();
    let mut random = SplitMix(12);
    let mut values = Vec::new();
    for _ in 0..20_000 {
        let mut row = RowMoments::default();
        for size in sizes {
            let sampled = random.uniform() <= old.inclusion(size);
            if sampled && random.uniform() <= new.inclusion(size) / old.inclusion(size) {
                row.add_live(&Sample::geometric(size, new));
            }
        }
        values.push(row.inuse_space.sum);
    }
    let z = mean_deviations(&values, sizes.iter().sum::<u64>() as f64);
    assert!(z.abs() < 5.4, "{z}");
}
