//! Proofs that single methods are useful: calibration, adaptive rates, unbiasing before summing.

use std::fmt;

use sampler_common::estimate::{Confidence, Estimator, Moments, Row, of_row};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{ClassUse, Design, Rate, Strategy, adapt, class};

use super::draw::{Program, sample};
use super::program::INTERVAL;
use crate::common::SplitMix;

/// Mean squared errors of stacks with at least 30 expected samples, weighted divided by calibrated.
pub(crate) struct Calibration {
    /// The ratio for bytes and for objects.
    pub(crate) gain: [f64; 2],
    /// Largest relative difference of the rows' sum from the exact total.
    pub(crate) off: f64,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, objects] = self.gain;
        let off = self.off;
        write!(
            f,
            "calibrated: squared error of stacks with 30 samples {bytes:.2} x (bytes), {objects:.2} x (objects) lower; sums off by {off:.0e}"
        )
    }
}

/// Forty stacks of mixed sizes, 16 B … 1 MiB. Some allocate a hundred times as much as others. They
/// have about 2,500 samples.
fn forty_stacks(seed: u64) -> Program {
    let mut random = SplitMix(seed);
    let sizes: Vec<u64> = (4..21).map(|power| 1 << power).collect();
    let stack = |index: i32| {
        let bytes = 375.0 * INTERVAL as f64 * 0.85f64.powi(index);
        let mut pick = || sizes[random.below(sizes.len())];
        let chosen = [pick(), pick(), pick()];
        chosen.iter().map(|size| (*size, (bytes / 3.0 / *size as f64).ceil() as u64)).collect()
    };
    let design = Design::from_interval(Strategy::Geometric, INTERVAL, 1.0).expect("in the domain");
    Program { designs: [design; CLASSES], stacks: (0..40).map(stack).collect() }
}

pub(crate) fn calibration(seed: u64, runs: u32) -> Calibration {
    let program = forty_stacks(seed);
    let (empty, mut random) = (program.reference(), SplitMix(seed + 1000));
    let chance = |size: u64| program.designs[0].inclusion(size).expect("not a stride");
    let expected = |stack: &Vec<(u64, u64)>| -> f64 {
        stack.iter().map(|(size, count)| chance(*size) * *count as f64).sum()
    };
    let (mut errors, mut off) = ([[0.0; 2]; 2], 0.0f64);
    for _ in 0..runs {
        let (rows, reference) = program.run(&empty, &mut random);
        let mut sums = [0.0; 2];
        for (index, row) in rows.iter().enumerate() {
            let truth = program.truth(index, None);
            let counts = expected(&program.stacks[index]) >= 30.0;
            for (which, estimator) in
                [Estimator::Weighted, Estimator::Calibrated].into_iter().enumerate()
            {
                // A stack without a sample is in no profile.
                if row.is_empty() {
                    continue;
                }
                let of = of_row(row, &reference, estimator, Confidence::DEFAULT);
                let values = [of.alloc_space.value, of.alloc_objects.value];
                for (quantity, truth) in [truth.0, truth.1].into_iter().enumerate() {
                    if counts {
                        errors[which][quantity] += (values[quantity] - truth).powi(2);
                    }
                    if which == 1 {
                        sums[quantity] += values[quantity];
                    }
                }
            }
        }
        let exact = empty.strata.values().filter_map(|totals| totals.exact);
        let exact = exact.fold([0.0, 0.0], |sum, (bytes, objects)| {
            [sum[0] + bytes as f64, sum[1] + objects as f64]
        });
        for (sum, exact) in sums.into_iter().zip(exact) {
            off = off.max((sum / exact - 1.0).abs());
        }
    }
    Calibration { gain: [0, 1].map(|quantity| errors[0][quantity] / errors[1][quantity]), off }
}

/// Variance of live bytes with equal numbers of samples, geometric divided by adaptive.
pub(crate) struct Adaptation {
    pub(crate) gain: f64,
    /// Number of samples, adaptive divided by geometric.
    pub(crate) samples: f64,
    /// Error of the live bytes divided by its standard error, adaptive.
    pub(crate) bias: f64,
    /// Variance of the allocated bytes, adaptive divided by geometric: the price.
    pub(crate) price: f64,
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Adaptation { gain, samples, bias, price } = self;
        write!(
            f,
            "adaptive: variance of live bytes {gain:.2} x lower at {samples:.3} x the samples, bias {bias:+.1} s.e.; of allocated bytes {price:.2} x higher"
        )
    }
}

/// A program whose small blocks hardly survive and whose middle-sized blocks do: (size,
/// allocations, live).
const SURVIVAL: [(u64, u64, u64); 6] = [
    (32, 4_000_000, 4_000),
    (128, 1_000_000, 2_000),
    (1024, 120_000, 36_000),
    (8 << 10, 12_000, 9_000),
    (64 << 10, 2_000, 60),
    (512 << 10, 150, 60),
];

pub(crate) fn adaptation(seed: u64, runs: u32) -> Adaptation {
    let mut uses = [ClassUse::default(); CLASSES];
    for (size, objects, live) in SURVIVAL {
        let bytes = (size * objects) as f64;
        uses[class(size)] = ClassUse { objects: objects as f64, bytes, live_objects: live as f64 };
    }
    let geometric =
        Design::new(Strategy::Geometric, Rate::from_interval(INTERVAL).expect("in the domain"));
    let mut random = SplitMix(seed + 2000);
    let truth: f64 = SURVIVAL.iter().map(|(size, _, live)| (size * live) as f64).sum();
    let mut of = |designs: [Design; CLASSES]| {
        let (mut live, mut all, mut samples) = (Vec::new(), Vec::new(), 0u32);
        for _ in 0..runs {
            let mut sums = [0.0; 2];
            for (size, objects, survivors) in SURVIVAL {
                for (count, lives) in [(survivors, true), (objects - survivors, false)] {
                    sample(designs[class(size)], size, count, &mut random, |sample| {
                        let weight = size as f64 / sample.inclusion().unwrap_or(1.0);
                        sums[0] += if lives { weight } else { 0.0 };
                        sums[1] += weight;
                        samples += 1;
                    });
                }
            }
            live.push(sums[0]);
            all.push(sums[1]);
        }
        (spread(&live), spread(&all), f64::from(samples))
    };
    let (plain, plain_all, plain_samples) = of([geometric; CLASSES]);
    let (best, best_all, best_samples) = of(adapt(&uses, INTERVAL as f64));
    Adaptation {
        gain: plain.1 / best.1,
        samples: best_samples / plain_samples,
        bias: (best.0 - truth) / (best.1 / f64::from(runs)).sqrt(),
        price: best_all.1 / plain_all.1,
    }
}

/// Mean and variance.
fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0))
}

/// jemalloc's example: stack A allocates 8 bytes a million times, stack B 8 MB once, at an interval
/// of 1 MB.
pub(crate) struct AandB {
    /// Mean errors divided by their standard errors: bytes and objects of A, then of B.
    pub(crate) bias: [f64; 4],
    /// Means of bytes and objects if A and B are summed before unbiasing.
    pub(crate) merged: [f64; 2],
}

impl fmt::Display for AandB {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bias, [bytes, objects]) = (self.bias, self.merged);
        write!(
            f,
            "stacks A and B: bias {bias:+.1?} s.e.; summed before unbiasing {:.1} of 16 MB, {objects:.1} of 1,000,001 objects",
            bytes / 1e6
        )
    }
}

pub(crate) fn stacks_a_and_b(seed: u64, runs: u32) -> AandB {
    let design = Design::from_interval(Strategy::Geometric, 1_000_000, 1.0).expect("in the domain");
    let program = Program {
        designs: [design; CLASSES],
        stacks: vec![vec![(8, 1_000_000)], vec![(8_000_000, 1)]],
    };
    let (empty, mut random) = (program.reference(), SplitMix(seed + 3000));
    let (mut values, mut merged, mut seen) = ([const { Vec::new() }; 4], [0.0; 2], 0.0f64);
    for _ in 0..runs {
        let (rows, reference) = program.run(&empty, &mut random);
        let of = |row: &Row| of_row(row, &reference, Estimator::Weighted, Confidence::DEFAULT);
        for (index, row) in rows.iter().enumerate() {
            let of = of(row);
            values[2 * index].push(of.alloc_space.value);
            values[2 * index + 1].push(of.alloc_objects.value);
        }
        let mut both: Moments = rows[0].total().alloc_space;
        both.add(&rows[1].total().alloc_space);
        // B is missed once in three thousand runs. In such a run nothing is merged.
        if rows[1].total().alloc_space.samples > 0 {
            seen += 1.0;
            let mean = both.own / both.samples as f64;
            let chance = design.inclusion(mean as u64).expect("not a stride");
            merged[0] += both.own / chance;
            merged[1] += both.samples as f64 / chance;
        }
    }
    let truth = [8e6, 1e6, 8e6, 1.0];
    let bias = [0, 1, 2, 3].map(|index| {
        let variance = program.variance(index / 2);
        let variance = if index % 2 == 0 { variance.0 } else { variance.1 };
        (spread(&values[index]).0 - truth[index]) / (variance / f64::from(runs)).sqrt()
    });
    AandB { bias, merged: merged.map(|sum| sum / seen.max(1.0)) }
}
