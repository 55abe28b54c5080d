//! Lifetimes: a textbook's numbers, laws, and a simulation with blocks that are still held.

mod common;

use common::SplitMix;
use proptest::prelude::*;
use sampler_common::estimate::{Confidence, Share, Step, Survival, Weights};

/// Steps from blocks: age, whether the block was freed then, weight.
fn steps(blocks: &[(f64, bool, f64)]) -> Vec<Step> {
    let step = |(age_ns, freed, weight): &(f64, bool, f64)| {
        let mut weights = Weights::default();
        weights.add_sample(*weight);
        let (freed, censored) =
            if *freed { (weights, Weights::default()) } else { (Weights::default(), weights) };
        Step { age_ns: *age_ns, freed, censored }
    };
    blocks.iter().map(step).collect()
}

fn curve(blocks: &[(f64, bool, f64)]) -> Survival {
    Survival::new(steps(blocks))
}

/// Weeks of remission under 6-mercaptopurine, negative if the remission went on: E. J. Freireich et
/// al., Blood 21 (1963).
const REMISSION: [i32; 21] =
    [6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35];

fn remission() -> Vec<(f64, bool, f64)> {
    REMISSION.iter().map(|weeks| (f64::from(weeks.abs()), *weeks > 0, 1.0)).collect()
}

/// J. P. Klein and M. L. Moeschberger, "Survival Analysis" (2003), table 4.1: the curve and
/// Greenwood's standard errors.
#[test]
fn the_curve_is_that_of_the_textbook() {
    let table = [
        (6.0, 0.857, 0.0764),
        (7.0, 0.807, 0.0869),
        (10.0, 0.753, 0.0963),
        (13.0, 0.690, 0.1068),
        (16.0, 0.627, 0.1141),
        (22.0, 0.538, 0.1282),
        (23.0, 0.448, 0.1346),
    ];
    let curve = curve(&remission());
    for (age, share, error) in table {
        let got = curve.beyond(age, Confidence::DEFAULT);
        assert!((got.value - share).abs() < 5.5e-4, "{age}: {got:?}");
        let deviation = curve.deviation(age);
        assert!((deviation - error).abs() < 6e-5, "{age}: {deviation} instead of {error}");
    }
    let median = curve.median(Confidence::DEFAULT);
    assert_eq!(median.value, Some(23.0));
    // The length of the longest remissions is unknown.
    assert!(median.low > 6.0 && median.low <= 16.0 && median.high.is_none(), "{median:?}");
    assert_eq!(curve.beyond(36.0, Confidence::DEFAULT).low, 0.0);
}

#[test]
fn a_curve_without_samples_covers_0_to_1() {
    let nothing = curve(&[]);
    let share = nothing.within(1e6, Confidence::DEFAULT);
    assert_eq!((share.low, share.high), (0.0, 1.0));
    let median = nothing.median(Confidence::DEFAULT);
    assert_eq!((median.value, median.low, median.high), (None, 0.0, None));
}

#[test]
fn one_block_gives_a_wide_interval() {
    let freed = curve(&[(5.0, true, 1e6)]);
    let within = freed.within(5.0, Confidence::DEFAULT);
    assert_eq!(within.value, 1.0);
    // Clopper and Pearson's interval, 1 of 1.
    assert!((within.low - 0.025).abs() < 1e-9, "{within:?}");
    let median = freed.median(Confidence::DEFAULT);
    assert_eq!((median.value, median.low, median.high), (Some(5.0), 0.0, None));
}

fn blocks() -> impl Strategy<Value = Vec<(f64, bool, f64)>> {
    prop::collection::vec((0u8..12, any::<bool>(), 1u32..1000), 1..40).prop_map(|list| {
        list.into_iter().map(|(age, freed, w)| (f64::from(age), freed, f64::from(w))).collect()
    })
}

/// Efron's redistribution to the right, a second way to the same estimator. Each censored block
/// passes its weight on, in proportion, to the blocks that were watched longer (at equal ages: to
/// those that went on).
fn redistributed(mut blocks: Vec<(f64, bool, f64)>, age: f64) -> f64 {
    blocks.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let all: f64 = blocks.iter().map(|block| block.2).sum();
    let mut below = 0.0;
    for at in 0..blocks.len() {
        let (time, freed, weight) = blocks[at];
        if time > age {
            break;
        }
        if freed {
            below += weight;
            continue;
        }
        let rest: f64 = blocks[at + 1..].iter().map(|block| block.2).sum();
        for later in &mut blocks[at + 1..] {
            later.2 += weight * later.2 / rest;
        }
    }
    1.0 - below / all
}

proptest! {
    #[test]
    fn the_curve_is_efrons_redistribution(blocks in blocks(), age in 0u8..12) {
        let age = f64::from(age);
        let got = curve(&blocks).beyond(age, Confidence::DEFAULT).value;
        let expected = redistributed(blocks, age);
        prop_assert!((got - expected).abs() < 1e-9, "{got} instead of {expected}");
    }

    #[test]
    fn the_curve_falls_and_stays_in_its_interval(blocks in blocks()) {
        let curve = curve(&blocks);
        let mut last = 1.0;
        for half in 0..26 {
            let Share { value, low, high } = curve.beyond(f64::from(half) / 2.0, Confidence::DEFAULT);
            prop_assert!(value <= last + 1e-12);
            prop_assert!(0.0 <= low && low <= value && value <= high && high <= 1.0, "{low} {value} {high}");
            last = value;
        }
        let median = curve.median(Confidence::DEFAULT);
        prop_assert!(median.value.is_none_or(|value| median.low <= value));
        prop_assert!(median.high.is_none_or(|high| median.value.is_some_and(|value| value <= high)));
    }

    /// Scaling all weights does not change the curve.
    #[test]
    fn scaled_weights_give_the_same_curve(blocks in blocks(), age in 0u8..12) {
        let scaled: Vec<_> = blocks.iter().map(|(age, freed, w)| (*age, *freed, w * 4096.0)).collect();
        let of = |blocks: &[(f64, bool, f64)]| curve(blocks).within(f64::from(age), Confidence::DEFAULT);
        let (a, b) = (of(&blocks), of(&scaled));
        prop_assert!((a.low - b.low).abs() + (a.value - b.value).abs() + (a.high - b.high).abs() < 1e-9);
    }

    /// With equal weights the variance is Greenwood's.
    #[test]
    fn equal_weights_have_greenwoods_variance(blocks in blocks(), age in 0u8..12) {
        let equal: Vec<_> = blocks.iter().map(|(age, freed, _)| (*age, *freed, 7.0)).collect();
        let mut sum = 0.0;
        for step in 0..=age {
            let at = f64::from(step);
            let watched = equal.iter().filter(|block| block.0 >= at).count() as f64;
            let freed = equal.iter().filter(|block| block.0 == at && block.1).count() as f64;
            if watched == freed {
                prop_assume!(freed == 0.0);
                break;
            }
            sum += freed / (watched * (watched - freed));
        }
        let curve = curve(&equal);
        let value = curve.beyond(f64::from(age), Confidence::DEFAULT).value;
        prop_assume!(value < 1.0);
        let (got, expected) = (curve.deviation(f64::from(age)), value * sum.sqrt());
        prop_assert!((got / expected - 1.0).abs() < 1e-9, "{got} instead of {expected}");
    }
}

/// Parameters of a program. Half of its bytes are in short-lived blocks, half in long-lived ones.
/// It allocates all the time, and is evaluated after 3 s. One byte in `INTERVAL` is sampled.
const INTERVAL: f64 = 4096.0;
/// Mean lifetimes, ns.
const MEANS: [f64; 2] = [0.05e9, 2e9];
const LOOK_NS: f64 = 3e9;
/// Sizes. Weights are equal, or differ together with lifetimes.
const EQUAL: [f64; 2] = [4096.0, 4096.0];
const MIXED: [f64; 2] = [512.0, 16384.0];

/// The true share of bytes that live longer than `age`.
fn truth(age: f64) -> f64 {
    MEANS.iter().map(|mean| 0.5 * (-age / mean).exp()).sum()
}

fn simulated(sizes: [f64; 2], random: &mut SplitMix, samples: usize) -> Vec<(f64, bool, f64)> {
    let inclusion = |size: f64| -(-size / INTERVAL).exp_m1();
    // Each kind allocates equal bytes. A sample's kind is drawn in proportion to its chance.
    let rates = sizes.map(|size| inclusion(size) / size);
    let block = |random: &mut SplitMix| {
        let kind = usize::from(random.uniform() * (rates[0] + rates[1]) > rates[0]);
        let watched = random.uniform() * LOOK_NS;
        let life = -random.uniform().ln() * MEANS[kind];
        (life.min(watched), life <= watched, sizes[kind] / inclusion(sizes[kind]))
    };
    (0..samples).map(|_| block(random)).collect()
}

struct Simulation {
    /// Mean error, in standard deviations of the estimate.
    bias: f64,
    /// Share of runs whose interval covers the truth.
    coverage: f64,
    /// `bias` of the curve that leaves out held blocks.
    naive: f64,
}

const RUNS: u32 = 1000;

fn simulation(sizes: [f64; 2], age: f64, samples: usize, seed: u64) -> Simulation {
    let mut random = SplitMix(seed);
    let (mut held, mut errors, mut naive) = (0u32, Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let blocks = simulated(sizes, &mut random, samples);
        let share = curve(&blocks).beyond(age, Confidence::DEFAULT);
        held += u32::from(share.low <= truth(age) && truth(age) <= share.high);
        errors.push(share.value - truth(age));
        let freed: Vec<_> = blocks.into_iter().filter(|block| block.1).collect();
        naive.push(curve(&freed).beyond(age, Confidence::DEFAULT).value - truth(age));
    }
    let bias = |errors: &[f64]| {
        let n = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / n;
        let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / (n - 1.0);
        mean / variance.sqrt()
    };
    let coverage = f64::from(held) / f64::from(RUNS);
    Simulation { bias: bias(&errors), coverage, naive: bias(&naive) }
}

/// 1,000 runs: the mean error has a standard error of 0.032 deviations, a coverage of 95 % one of
/// 0.7 %. A ratio of sums of unequal weights has a bias of its own. Relative to a standard
/// deviation it is of the order of one over the square root of the samples.
#[test]
fn the_curve_is_unbiased_where_blocks_are_still_held() {
    println!("sizes  samples  age         bias  coverage  bias without the held");
    for (name, sizes) in [("equal", EQUAL), ("mixed", MIXED)] {
        for (seed, samples) in [(11, 30), (12, 30), (13, 30), (14, 300), (15, 300), (16, 300)] {
            for age in [1e6, 0.1e9, 1e9] {
                let got = simulation(sizes, age, samples, seed);
                println!(
                    "{name}  {samples:7}  {:5.3} s  {:7.3}  {:8.4}  {:7.2}",
                    age / 1e9,
                    got.bias,
                    got.coverage,
                    got.naive
                );
                let own = if name == "equal" { 0.0 } else { 1.0 / (samples as f64).sqrt() };
                assert!(got.bias.abs() < own + 0.16, "{name} {samples} {age}: {}", got.bias);
                assert!(got.coverage > 0.915, "{name} {samples} {age}: {}", got.coverage);
                // Negative control: blocks that are still held lived longer.
                let least = if samples == 30 { 0.7 } else { 2.0 };
                assert!(age < 0.1e9 || got.naive < -least, "{name} {samples} {age}: {}", got.naive);
            }
        }
    }
}

#[test]
fn intervals_of_medians_have_their_coverage() {
    // The median of the mixture, found by bisection.
    let (mut low, mut high) = (0.0, 10e9);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if truth(middle) > 0.5 { low = middle } else { high = middle }
    }
    for seed in [21, 22, 23] {
        let mut random = SplitMix(seed);
        let held = (0..1000).filter(|_| {
            let median = curve(&simulated(MIXED, &mut random, 100)).median(Confidence::DEFAULT);
            median.low <= low && median.high.is_none_or(|high| low <= high)
        });
        let share = held.count() as f64 / 1000.0;
        println!("median {:.3} s: covered {share}", low / 1e9);
        assert!(share > 0.915, "{share}");
    }
}
