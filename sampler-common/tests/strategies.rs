//! Decisions of every strategy, by the code that the kernel runs.

mod common;

use common::{Local, SplitMix};
use proptest::prelude::*;
use sampler_common::estimate::{RowMoments, Sample};
use sampler_common::sampling::{Decision, Design, Strategy, decide};

/// A CPU with its countdown and its position.
struct Machine {
    countdown: Local,
    position: Local,
    random: SplitMix,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine { countdown: Local::default(), position: Local::default(), random: SplitMix(seed) }
    }

    fn decide(&mut self, design: Design, size: u64) -> Decision {
        decide(design, size, &self.countdown, &self.position, &mut self.random)
    }
}

fn design(strategy: Strategy, interval: u64, mean: f64) -> Design {
    Design::from_interval(strategy, interval, mean).expect("in the domain")
}

/// Sizes of every magnitude, for an interval of 4,096.
const SIZES: [u64; 8] = [0, 1, 16, 100, 1000, 4096, 12_000, 18_000];

/// Standard deviations that a right implementation exceeds in 10⁻⁶ of the runs, over all
/// comparisons of this file.
const LIMIT: f64 = 6.0;

#[test]
fn estimates_are_unbiased_and_know_their_variance() {
    for (seed, strategy) in
        [(1, Strategy::Geometric), (2, Strategy::Poisson), (3, Strategy::Bernoulli)]
    {
        let design = design(strategy, 4096, 500.0);
        let mut machine = Machine::new(seed);
        let calls = 40_000;
        let mut rows = [RowMoments::default(); SIZES.len()];
        // The sizes are interleaved, so that the rest of the countdown after one request affects
        // the others.
        for _ in 0..calls {
            for (row, size) in rows.iter_mut().zip(SIZES) {
                if let Decision::Hit { hits, offset } = machine.decide(design, size) {
                    assert!(offset < size.max(1), "{strategy:?}: byte {offset} of {size}");
                    row.add_allocation(&Sample { hits, ..Sample::new(size, design) });
                }
            }
        }
        for (row, size) in rows.iter().zip(SIZES) {
            let truth = f64::from(calls);
            let objects = row.alloc_objects;
            let deviations = (objects.sum - truth) / objects.variance.sqrt().max(1e-9);
            assert!(deviations.abs() < LIMIT, "{strategy:?}, {size}: {deviations} deviations");
            // The variance per call, from first principles.
            let expected = match (strategy, design.inclusion(size)) {
                (_, Some(1.0)) => 0.0,
                (Strategy::Poisson, _) => 4096.0 / size.max(1) as f64,
                (_, Some(inclusion)) => (1.0 - inclusion) / inclusion,
                (_, None) => unreachable!("no stride here"),
            } * truth;
            // The reported variance is itself a sum of samples, at least some 100.
            let slack = 0.05 + LIMIT * 1.5 / (objects.samples as f64).sqrt();
            assert!(
                (objects.variance - expected).abs() <= slack * expected,
                "{strategy:?}, {size}: variance {} instead of {expected}",
                objects.variance
            );
        }
    }
}

#[test]
fn poisson_counts_points() {
    // The distribution of the number of points, not only its mean: m = 3 for requests of 3 R.
    let (calls, mean) = (200_000, 3.0f64);
    let design = design(Strategy::Poisson, 4096, 1.0);
    let mut machine = Machine::new(4);
    let mut counts = [0u64; 20];
    for _ in 0..calls {
        let hits = match machine.decide(design, 3 * 4096) {
            Decision::Miss => 0,
            Decision::Hit { hits, .. } => hits as usize,
        };
        counts[hits.min(19)] += 1;
    }
    let mut probability = (-mean).exp();
    for (hits, count) in counts.iter().enumerate().take(12) {
        let deviations = common::deviations(*count, calls, probability);
        assert!(deviations.abs() < LIMIT, "{hits} points: {deviations} deviations");
        probability *= mean / (hits + 1) as f64;
    }
}

#[test]
fn a_kept_poisson_sample_stays_unbiased_and_knows_its_variance() {
    let design = design(Strategy::Poisson, 4096, 1.0);
    let (size, calls) = (8192, 100_000);
    for kept in [1.0, 0.5, 0.125] {
        let mut machine = Machine::new(5);
        let mut row = RowMoments::default();
        for _ in 0..calls {
            if let Decision::Hit { hits, .. } = machine.decide(design, size)
                && machine.random.uniform() <= kept
            {
                row.add_live(&Sample { hits, kept, ..Sample::new(size, design) });
            }
        }
        let mean = 2.0;
        let variance =
            (4096.0f64).powi(2) * ((mean + mean * mean) / kept - mean * mean) * f64::from(calls);
        let truth = (size * u64::from(calls as u32)) as f64;
        let deviations = (row.inuse_space.sum - truth) / variance.sqrt();
        assert!(deviations.abs() < LIMIT, "kept {kept}: {deviations} deviations");
        let ratio = row.inuse_space.variance / variance;
        assert!((ratio - 1.0).abs() < 0.05, "kept {kept}: variance ratio {ratio}");
    }
}

/// Bytes estimated by one strategy for a program that allocates `sizes` in turn.
fn estimated(
    strategy: Strategy,
    interval: u64,
    sizes: &[u64],
    rounds: usize,
    seed: u64,
) -> Vec<RowMoments> {
    let design = design(strategy, interval, 1.0);
    let mut machine = Machine::new(seed);
    machine.position.0.set((seed % interval) as i64);
    let mut rows = vec![RowMoments::default(); sizes.len()];
    for _ in 0..rounds {
        for (row, size) in rows.iter_mut().zip(sizes) {
            if let Decision::Hit { hits, .. } = machine.decide(design, *size) {
                row.add_allocation(&Sample { hits, ..Sample::new(*size, design) });
            }
        }
    }
    rows
}

#[test]
fn only_a_stride_is_biased_on_a_periodic_program() {
    // A loop that allocates 4,096 bytes a round, in step with the stride: all points are at one
    // site.
    let (sizes, rounds) = ([1024u64, 2048, 512, 512], 20_000);
    let truth = |size: u64| (size * rounds as u64) as f64;
    let stride = estimated(Strategy::Stride, 4096, &sizes, rounds, 1);
    let sampled: Vec<_> = stride.iter().filter(|row| row.alloc_space.samples > 0).collect();
    assert_eq!(sampled.len(), 1, "one site takes every point");
    assert_eq!(sampled[0].alloc_space.sum, truth(4096), "and all the bytes");
    assert!(sampled[0].alloc_space.variance.is_infinite(), "a stride knows no variance");

    let geometric = estimated(Strategy::Geometric, 4096, &sizes, rounds, 1);
    for (row, size) in geometric.iter().zip(sizes) {
        let bytes = row.alloc_space;
        let deviations = (bytes.sum - truth(size)) / bytes.variance.sqrt();
        assert!(deviations.abs() < LIMIT, "{size}: {deviations} deviations");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stride_counts_every_nth_byte(
        interval in 64u64..100_000, start in 0i64..1 << 33,
        sizes in proptest::collection::vec((0u32..40, any::<u64>()), 1..50),
    ) {
        let design = Design::stride(interval).expect("in the domain");
        let mut machine = Machine::new(1);
        machine.position.0.set(start);
        let mut at = start as u64;
        for (shift, size) in sizes {
            let size = size >> (63 - shift);
            let bytes = size.max(1);
            let hits = (at + bytes) / interval - at / interval;
            match machine.decide(design, size) {
                Decision::Miss => prop_assert_eq!(hits, 0),
                Decision::Hit { hits: counted, offset } => {
                    prop_assert_eq!(u64::from(counted), hits.min(u64::from(u32::MAX)));
                    prop_assert!(offset < bytes);
                    prop_assert_eq!((at + offset + 1) % interval, 0, "the first point is at the offset");
                }
            }
            at += bytes;
        }
    }

    #[test]
    fn any_design_word_gives_finite_estimates(word: u64, size: u64, seed: u64, countdown: i64, position: i64) {
        let mut machine = Machine::new(seed);
        machine.countdown.0.set(countdown);
        machine.position.0.set(position);
        let design = Design::from_word(word);
        if let Decision::Hit { hits, .. } = machine.decide(design, size) {
            prop_assert!(hits > 0);
            let mut row = RowMoments::default();
            row.add_allocation(&Sample { hits, ..Sample::new(size, design) });
            prop_assert!(row.alloc_space.sum.is_finite() && row.alloc_objects.sum.is_finite());
        }
    }
}
