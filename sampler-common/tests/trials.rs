//! Failed trials of rows: sums over samples of different intervals, and the interval around the
//! weighted estimate.

mod common;

use common::{Local, SplitMix};
use sampler_common::estimate::{
    Confidence, Edges, RowMoments, Sample, Trials, around, failed_trials, of_trials, weighted,
};
use sampler_common::sampling::{Design, Rate, Strategy, Trial, offset, trial};

const CONFIDENCE: Confidence = Confidence::DEFAULT;

fn sums(samples: u64, interval: u64, tail: u64) -> Trials {
    let design = Design::from_interval(Strategy::Geometric, interval, 1.0).expect("in the domain");
    let sample = Sample { tail: Some(tail), ..Sample::new(tail, design) };
    let mut trials = Trials::default();
    (0..samples).for_each(|_| trials.add(&Trials::of(&sample)));
    trials
}

#[test]
fn rows_of_equal_intervals_have_the_bounds_of_the_law() {
    for interval in [2, 3, 1000, 102_400, 1 << 32] {
        for samples in [1, 2, 8, 1000] {
            for edges in [Edges::Aligned, Edges::Window, Edges::Conservative] {
                let row = of_trials(&sums(samples, interval, 100), samples, 1.0, edges, CONFIDENCE);
                let law = failed_trials(samples, 100 * samples, interval as f64, edges, CONFIDENCE)
                    .expect("in the domain");
                // λ is rounded to 2⁻⁴⁸: at 2^32 to one part in 10⁵ of the interval.
                let slack = 1.0 + (2e-15 * interval as f64) * law.high;
                for (got, expected) in
                    [(row.low, law.low), (row.value, law.value), (row.high, law.high)]
                {
                    assert!(
                        (got - expected).abs() <= slack,
                        "{samples} at {interval}: {row:?} {law:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn rows_without_failures_have_bounds() {
    let of = |trials, samples, interval| {
        of_trials(&trials, samples, interval, Edges::Window, CONFIDENCE)
    };
    let next = failed_trials(0, 0, 1000.0, Edges::Window, CONFIDENCE).expect("in the domain").high;
    assert_eq!(of(Trials::default(), 0, 1000.0).high, next);
    let exact = of(sums(5, 1, 100), 5, 1.0);
    assert_eq!((exact.low, exact.value, exact.high), (500.0, 500.0, 500.0));
    // Every byte was a hit. At the lower rate since then, bytes may have been missed.
    assert_eq!(of(sums(5, 1, 100), 5, 1000.0).high, 500.0 + next);
}

#[test]
fn bounds_hold_for_every_sum() {
    let mut random = SplitMix(3);
    for _ in 0..3000 {
        let mut any = || 10f64.powf(random.uniform() * 40.0 - 12.0);
        let trials = Trials { failures: any(), variance: any(), tail: any() };
        for edges in [Edges::Aligned, Edges::Window, Edges::Conservative] {
            let of = of_trials(&trials, 1, 1000.0, edges, CONFIDENCE);
            assert!(
                0.0 <= of.low && of.low <= of.value && of.value <= of.high,
                "{trials:?} {of:?}"
            );
            assert!(of.high.is_finite(), "{trials:?} {of:?}");
        }
    }
}

/// One stream whose interval changes, through the production countdown: intervals cover without
/// bias, around the weighted estimate as well.
#[test]
fn changing_intervals_are_covered() {
    const RUNS: u32 = 3000;
    let rates = [500u64, 4000, 1000, 2000].map(|r| Rate::from_interval(r).expect("in the domain"));
    for sizes in [[16u64, 16, 16, 16], [8, 64, 300, 2000], [1500, 3000, 1500, 3000]] {
        let bytes: u64 = sizes.iter().sum();
        let calls = 4 * (16_000 / bytes);
        let truth = (calls * bytes) as f64;
        let (mut random, countdown) = (SplitMix(21), Local::default());
        let (mut sum, mut squares, mut covered) = (0.0, 0.0, [0u32; 2]);
        for _ in 0..RUNS {
            let mut row = RowMoments::default();
            for call in 0..calls {
                let rate = rates[(call * 4 / calls) as usize];
                for size in sizes {
                    if let Trial::Hit { rest } = trial(&countdown, rate.charge(size), &mut random) {
                        let tail = Some(size - offset(rest, rate.raw(), size));
                        row.add_allocation(&Sample { tail, ..Sample::geometric(size, rate) });
                    }
                }
            }
            let (samples, longest) = (row.alloc_space.samples, 4000.0);
            let of = of_trials(&row.alloc_trials, samples, longest, Edges::Window, CONFIDENCE);
            let by_weight = weighted(&row.alloc_space, longest, CONFIDENCE);
            for (covered, of) in covered.iter_mut().zip([of, around(&by_weight, &of)]) {
                *covered += u32::from(of.low <= truth && truth <= of.high);
            }
            sum += of.value;
            squares += (of.value - truth).powi(2);
        }
        let n = f64::from(RUNS);
        let bias = (sum / n - truth) / (squares / n / n).sqrt();
        let covered = covered.map(|covered| f64::from(covered) / n);
        println!("{sizes:?}: bias {bias:+.2} s.e., covered {covered:.3?}");
        assert!(bias.abs() < 5.4, "{sizes:?}: bias {bias}");
        // 95 % less five standard errors.
        assert!(covered.iter().all(|covered| *covered > 0.93), "{sizes:?}: {covered:?}");
    }
}
