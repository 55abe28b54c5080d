//! The failed-trials estimator against the .NET document, an approximation and simulation.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::SplitMix;
use sampler_common::estimate::failed_trials::cumulative;
use sampler_common::estimate::{Confidence, DomainError, Edges, Estimate, Method, failed_trials};
use statrs::function::erf::erfc;

const INTERVAL: f64 = 102_400.0;

fn aligned(samples: u64, tail_bytes: u64) -> Estimate {
    failed_trials(samples, tail_bytes, INTERVAL, Edges::Aligned, Confidence::DEFAULT).unwrap()
}

/// "Randomized Allocation Sampling", the table of failed trials: samples, CDF 0.025, CDF 0.975.
const TABLE: [(u64, u64, u64); 25] = [
    (1, 2591, 377738),
    (2, 24800, 570531),
    (3, 63349, 739802),
    (4, 111599, 897761),
    (5, 166241, 1048730),
    (6, 225469, 1194827),
    (7, 288185, 1337279),
    (8, 353666, 1476870),
    (9, 421407, 1614137),
    (10, 491039, 1749469),
    (20, 1250954, 3038270),
    (30, 2072639, 4264804),
    (40, 2926207, 5459335),
    (50, 3800118, 6633475),
    (100, 8331581, 12342053),
    (200, 17739679, 23413825),
    (300, 27341465, 34291862),
    (400, 37043463, 45069676),
    (500, 46809487, 55783459),
    (1000, 96149867, 108842093),
    (2000, 195919830, 213870137),
    (3000, 296301551, 318286418),
    (4000, 396999923, 422386047),
    (5000, 497900649, 526283322),
    (10000, 1004017229, 1044156743),
];

#[test]
fn the_published_table_is_one_below_the_quantiles() {
    for (samples, low, high) in TABLE {
        let estimate = aligned(samples, 0);
        // The numbers are exact, not only within 1: every number of the table is the last one below
        // the threshold.
        assert_eq!((estimate.low, estimate.high), ((low + 1) as f64, (high + 1) as f64));
        for (last_below, threshold) in [(low, 0.025), (high, 0.975)] {
            assert!(cumulative(last_below, samples, INTERVAL).unwrap() < threshold);
            assert!(cumulative(last_below + 1, samples, INTERVAL).unwrap() >= threshold);
        }
    }
}

#[test]
fn the_worked_example_of_the_document_is_reproduced() {
    let estimate = aligned(8, 10_908);
    assert!((estimate.low - 364_574.0).abs() <= 1.0, "{estimate:?}");
    assert!((estimate.high - 1_487_778.0).abs() <= 1.0, "{estimate:?}");
    assert_eq!(estimate.value, 8.0 * 102_399.0 + 10_908.0);
    assert_eq!((estimate.samples, estimate.method), (8, Method::FailedTrials));
}

/// The document's other formula for the CDF: Camp and Paulson's normal approximation.
fn camp_paulson(failures: u64, samples: u64, interval: f64) -> f64 {
    let (s, k, p) = (samples as f64, failures as f64 + 1.0, 1.0 / interval);
    let (a, b) = (1.0 / (9.0 * k), 1.0 / (9.0 * s));
    let root = (s * (1.0 - p) / (k * p)).cbrt();
    let deviations = ((1.0 - b) * root - (1.0 - a)) / (a + b * root * root).sqrt();
    0.5 * erfc(deviations / std::f64::consts::SQRT_2)
}

#[test]
fn camp_and_paulson_agree_within_the_documented_error() {
    for (samples, within) in [(1, 0.0125), (5, 0.0013), (50, 2e-4), (1000, 1e-5), (10_000, 1e-6)] {
        let mut worst: f64 = 0.0;
        for step in 1..200 {
            let failures = samples * 100_000 * step / 50;
            let exact = cumulative(failures, samples, 1e5).unwrap();
            worst = worst.max((exact - camp_paulson(failures, samples, 1e5)).abs());
        }
        println!("{samples} samples: Camp and Paulson within {worst:.1e}");
        assert!(worst < within, "{samples} samples: {worst}");
    }
}

/// The bounds, found on the approximate distribution by bisection.
#[test]
fn camp_and_paulson_find_the_same_bounds() {
    let mut worst: f64 = 0.0;
    for (samples, _, _) in TABLE {
        let exact = aligned(samples, 0);
        for (threshold, exact) in [(0.025, exact.low), (0.975, exact.high)] {
            let (mut below, mut above) = (0, 4 * exact as u64);
            while above - below > 1 {
                let middle = below + (above - below) / 2;
                let reached = camp_paulson(middle, samples, INTERVAL) >= threshold;
                if reached { above = middle } else { below = middle }
            }
            // The error is 2 % of a standard deviation for one sample, and less for more.
            let deviation = INTERVAL * (samples as f64).sqrt();
            let error = (above as f64 - exact).abs() / deviation;
            worst = worst.max(error);
            assert!(error < 0.025, "{samples} samples: {above} instead of {exact}");
        }
    }
    println!("Camp and Paulson's bounds are within {worst:.4} standard deviations");
}

#[test]
fn the_bounds_of_one_sample_are_geometric() {
    for interval in [1.5, 2.0, 100.0, INTERVAL, 524_288.0, 4e9, 4_294_967_296.0] {
        for level in [0.5, 0.95, 0.999_999] {
            let confidence = Confidence::new(level).unwrap();
            let of = failed_trials(1, 0, interval, Edges::Aligned, confidence).unwrap();
            let q = (-1.0 / interval).ln_1p();
            let tail = confidence.alpha() / 2.0;
            let exact = |ln_survival: f64| (ln_survival / q - 1.0).ceil().max(0.0);
            let expected = [exact((-tail).ln_1p()), exact(tail.ln())];
            for (got, expected) in [of.low, of.high].into_iter().zip(expected) {
                let off = (got - expected).abs();
                assert!(off <= 1.0 + 1e-9 * expected, "R {interval}: {got} {expected}");
            }
        }
    }
}

#[test]
fn window_edges_shift_the_number_of_samples() {
    let of =
        |edges, samples| failed_trials(samples, 100, INTERVAL, edges, Confidence::DEFAULT).unwrap();
    for samples in [1, 2, 17] {
        let (window, conservative) = (of(Edges::Window, samples), of(Edges::Conservative, samples));
        assert_eq!(window.low, aligned(samples, 100).low);
        assert_eq!(window.high, aligned(samples + 1, 100).high);
        assert_eq!(conservative.high, window.high);
        if samples > 1 {
            assert_eq!(conservative.low, aligned(samples - 1, 100).low);
        }
        assert_eq!(window.value, conservative.value);
    }
    assert_eq!(of(Edges::Conservative, 1).low, 100.0);
    // Without a sample there is an upper bound.
    for edges in [Edges::Window, Edges::Conservative] {
        let none = of(edges, 0);
        assert_eq!((none.low, none.value), (100.0, 100.0));
        assert_eq!(none.high, aligned(1, 100).high);
    }
}

/// Number of failed trials before the next hit.
fn failures(random: &mut SplitMix, interval: f64) -> u64 {
    (random.uniform().ln() / (-1.0 / interval).ln_1p()) as u64
}

/// Samples and tail bytes of consecutive allocations of `sizes`.
fn sampled(random: &mut SplitMix, interval: f64, sizes: impl Iterator<Item = u64>) -> (u64, u64) {
    let (mut samples, mut tail_bytes) = (0, 0);
    let mut countdown = failures(random, interval);
    for size in sizes {
        if countdown < size {
            samples += 1;
            tail_bytes += size - countdown;
            countdown = failures(random, interval);
        } else {
            countdown -= size;
        }
    }
    (samples, tail_bytes)
}

#[test]
fn a_fixed_total_is_estimated_without_bias_and_covered() {
    const REPETITIONS: u32 = 4000;
    // Small allocations, mixed ones, and ones larger than the interval.
    for sizes in [[16, 16, 16, 16], [8, 64, 300, 2000], [1500, 3000, 1500, 3000]] {
        for seed in [1, 2, 3] {
            let (mut random, interval) = (SplitMix(seed), 1000.0);
            let rounds = 10_000 / sizes.iter().sum::<u64>();
            let total = (rounds * sizes.iter().sum::<u64>()) as f64;
            let (mut sum, mut squares, mut covered) = (0.0, 0.0, [0.0; 2]);
            for _ in 0..REPETITIONS {
                let all = (0..rounds).flat_map(|_| sizes);
                let (samples, tail) = sampled(&mut random, interval, all);
                for (edges, covered) in
                    [Edges::Window, Edges::Conservative].into_iter().zip(&mut covered)
                {
                    let of =
                        failed_trials(samples, tail, interval, edges, Confidence::DEFAULT).unwrap();
                    *covered += f64::from(u8::from(of.low <= total && total <= of.high));
                    sum += of.value / 2.0;
                    squares += (of.value - total).powi(2) / 2.0;
                }
            }
            let n = f64::from(REPETITIONS);
            let [window, conservative] = covered.map(|covered| covered / n);
            let bias = (sum / n - total) / (squares / n / n).sqrt();
            println!(
                "{sizes:?} seed {seed}: bias {bias:+.2} s.e., covered {window:.3} in a window, {conservative:.3} conservatively"
            );
            assert!(bias.abs() < 4.0, "{sizes:?} seed {seed}: {bias}");
            let error = (0.05 * 0.95 / n).sqrt();
            assert!(window > 0.95 - 3.0 * error && conservative >= window, "{sizes:?}: {window}");
        }
    }
}

#[test]
fn an_interval_of_1_gives_exact_bounds() {
    let of = failed_trials(7, 700, 1.0, Edges::Window, Confidence::DEFAULT).unwrap();
    assert_eq!((of.low, of.value, of.high), (700.0, 700.0, 700.0));
}

#[test]
fn bounds_hold_at_every_confidence_and_size() {
    for level in [1e-9, 0.1, 0.5, 0.95, 1.0 - 1e-9, 1.0 - 1e-15] {
        let confidence = Confidence::new(level).unwrap();
        for (samples, interval) in
            [(1, 1.0 + 1e-12), (1, 2.0), (3, 4e9), (1000, 1.01), ((1 << 28) - 1, 4_294_967_296.0)]
        {
            for edges in [Edges::Aligned, Edges::Window, Edges::Conservative] {
                let of = failed_trials(samples, 5, interval, edges, confidence).unwrap();
                let line = format!("{samples} at {interval}, {level}, {edges:?}: {of:?}");
                assert!(of.low <= of.value && of.value <= of.high && of.high.is_finite(), "{line}");
            }
        }
    }
}

#[test]
fn arguments_outside_the_domain_are_errors() {
    let of = |samples, tail, interval, edges| {
        failed_trials(samples, tail, interval, edges, Confidence::DEFAULT).unwrap_err()
    };
    for interval in [0.0, -1.0, 0.5, f64::NAN, f64::INFINITY, 4_294_967_297.0] {
        let error = of(1, 1, interval, Edges::Window);
        assert!(matches!(error, DomainError::FractionalInterval(_)), "{error}");
        assert!(error.to_string().contains("between 1 and 4GiB (try 512KiB)"));
        assert!(cumulative(1, 1, interval).is_err());
    }
    assert_eq!(of(0, 0, 2.0, Edges::Aligned), DomainError::NoSamples);
    assert_eq!(of(1, (1 << 63) + 1, 2.0, Edges::Window), DomainError::TailBytes((1 << 63) + 1));
    for samples in [(1 << 28) + 1, u64::MAX] {
        assert_eq!(of(samples, 1, 4_294_967_296.0, Edges::Aligned), DomainError::Samples(samples));
    }
    assert_eq!(of(u64::MAX, 1, 1.0, Edges::Window), DomainError::Samples(u64::MAX));
}
