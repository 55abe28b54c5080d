//! The comparison of strategies, checked against formulas in the documents, simulation, and other
//! choices of chances.

mod common;

use common::SplitMix;
use proptest::prelude::{any, prop, prop_assert, proptest};
use sampler_common::estimate::{Plan, Strategies, exponential_error, strategies};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{ClassUse, Strategy, class};

const INTERVAL: f64 = 524_288.0;

/// Classes of (size, allocations, live).
fn classes(groups: &[(u64, f64, f64)]) -> [ClassUse; CLASSES] {
    let mut classes = [ClassUse::default(); CLASSES];
    for (size, objects, live_objects) in groups {
        let of = &mut classes[class(*size)];
        of.objects += objects;
        of.bytes += objects * *size as f64;
        of.live_objects += live_objects;
    }
    classes
}

fn close(got: f64, expected: f64, relative: f64) {
    assert!((got / expected - 1.0).abs() < relative, "{got} instead of {expected}");
}

#[test]
fn strategies_have_equal_variance_for_one_size() {
    let of = strategies(&classes(&[(4096, 1e6, 1e4)]), INTERVAL).unwrap();
    let plan = Plan::new(INTERVAL as u64, 4096 * 1_000_000, 4096).unwrap();
    for strategy in [Strategy::Geometric, Strategy::Bernoulli, Strategy::Adaptive] {
        let variances = of.of(strategy).unwrap();
        close(variances.alloc, plan.variance(), 1e-6);
        close(variances.live, plan.variance() / 100.0, 1e-6);
        close(variances.samples, plan.expected_samples(), 1e-6);
    }
    close(of.least_alloc, plan.variance(), 1e-6);
    // Counting points has the variance R·Z instead of about R·Z − Z².
    close(of.of(Strategy::Poisson).unwrap().alloc, 1e6 * INTERVAL * 4096.0, 0.01);
    assert_eq!(of.of(Strategy::Stride), None);
}

#[test]
fn the_variance_of_bernoulli_is_that_of_the_document() {
    // The variance is (N − 1)·Z² for each allocation, with one sample in N calls.
    let groups = [(16, 1e7, 1e5), (1 << 20, 1e3, 5e2)];
    let of = strategies(&classes(&groups), INTERVAL).unwrap();
    let bernoulli = of.of(Strategy::Bernoulli).unwrap();
    let n = (1e7 + 1e3) / bernoulli.samples;
    let square = |size: u64| (size * size) as f64;
    close(bernoulli.alloc, (n - 1.0) * (1e7 * square(16) + 1e3 * square(1 << 20)), 1e-9);
    close(bernoulli.live, (n - 1.0) * (1e5 * square(16) + 5e2 * square(1 << 20)), 1e-9);
    close(bernoulli.samples, of.of(Strategy::Geometric).unwrap().samples, 1e-12);
    assert!(bernoulli.alloc > 100.0 * of.of(Strategy::Geometric).unwrap().alloc);
}

/// Survival from 90 % of the smallest blocks to 0.1 % of the largest.
const TEMPORARIES: [(u64, f64, f64); 6] = [
    (16, 4e6, 3.6e6),
    (256, 2.5e5, 1e5),
    (4 << 10, 16e3, 3e2),
    (64 << 10, 1e3, 1e1),
    (512 << 10, 125.0, 1.0),
    (4 << 20, 16.0, 0.016),
];

#[test]
fn adaptive_is_near_the_least_variance_of_live_bytes() {
    let of = strategies(&classes(&TEMPORARIES), INTERVAL).unwrap();
    let live = |strategy| Strategies::ratio(of.of(strategy).unwrap().live, of.least_live);
    println!(
        "geometric {}, poisson {}, bernoulli {}, adaptive {}",
        live(Strategy::Geometric),
        live(Strategy::Poisson),
        live(Strategy::Bernoulli),
        live(Strategy::Adaptive)
    );
    assert!(live(Strategy::Adaptive) < 1.1, "{}", live(Strategy::Adaptive));
    assert!(live(Strategy::Geometric) > 1.3 * live(Strategy::Adaptive));
    let alloc = Strategies::ratio(of.of(Strategy::Geometric).unwrap().alloc, of.least_alloc);
    assert!(
        (1.0..1.2).contains(&alloc),
        "per byte is near the least for what is allocated: {alloc}"
    );
}

/// Variances equal those of simulated estimates, for geometric and bernoulli.
#[test]
fn variances_equal_those_of_a_simulation() {
    let groups = [(64u64, 20_000.0, 0.0), (16 << 10, 300.0, 0.0), (1 << 20, 6.0, 0.0)];
    let of = strategies(&classes(&groups), INTERVAL).unwrap();
    let budget = of.of(Strategy::Geometric).unwrap().samples;
    let requests: f64 = groups.iter().map(|(_, objects, _)| objects).sum();
    let mut random = SplitMix(5);
    for strategy in [Strategy::Geometric, Strategy::Bernoulli] {
        let runs = 1500;
        let mut squares = 0.0;
        for _ in 0..runs {
            let mut error = 0.0;
            for (size, objects, _) in groups {
                let bytes = size as f64;
                let p = match strategy {
                    Strategy::Geometric => -(bytes * (-1.0 / INTERVAL).ln_1p()).exp_m1(),
                    _ => budget / requests,
                };
                // Gaps between hits.
                let (miss, mut at, mut hits) = ((-p).ln_1p(), 0.0, 0.0);
                loop {
                    at += (random.uniform().ln() / miss).floor() + 1.0;
                    if at > objects {
                        break;
                    }
                    hits += 1.0;
                }
                error += bytes * (hits / p - objects);
            }
            squares += error * error / f64::from(runs);
        }
        let expected = of.of(strategy).unwrap().alloc;
        println!("{}: {squares:.3e} of {expected:.3e}", strategy.name());
        // A few hits of 1 MiB give bernoulli a heavy tail. Its squares vary far more than those of
        // a normal variable.
        close(squares, expected, if strategy == Strategy::Geometric { 0.2 } else { 0.8 });
    }
}

#[test]
fn empty_and_certain_classes_have_no_variance() {
    assert_eq!(strategies(&classes(&[]), INTERVAL), None);
    assert_eq!(strategies(&classes(&[(16, 1.0, 0.0)]), f64::NAN), None);
    // Without live blocks the live estimate has no variance.
    let of = strategies(&classes(&[(16, 1e6, 0.0)]), INTERVAL).unwrap();
    assert_eq!((of.least_live, of.of(Strategy::Geometric).unwrap().live), (0.0, 0.0));
    let certain = strategies(&classes(&TEMPORARIES), 1.0).unwrap();
    assert_eq!((certain.least_alloc, certain.of(Strategy::Geometric).unwrap().alloc), (0.0, 0.0));
}

#[test]
fn the_exponential_error_is_half_the_rate() {
    let (error, size) = exponential_error(INTERVAL);
    assert_eq!(size, 1);
    close(error, 0.5 / INTERVAL, 1e-3);
    let (error, _) = exponential_error(64.0);
    close(error, 0.5 / 64.0, 0.05);
    // At one byte: 1 against 1 − 1/e.
    close(exponential_error(1.0).0, 1.0 / (1.0 - (-1f64).exp()) - 1.0, 1e-12);
}

proptest! {
    /// No other choice of chances with as many samples has a smaller variance.
    #[test]
    fn no_inclusion_probabilities_beat_the_least_variance(
        groups in prop::collection::vec((0u32..24, 1f64..1e6, 0f64..1.0), 1..8),
        moved in any::<(prop::sample::Index, prop::sample::Index)>(),
        share in 0f64..0.5,
        interval in 4f64..22.0,
    ) {
        let groups: Vec<(u64, f64, f64)> =
            groups.iter().map(|(power, a, live)| (16 << power, a.round(), a.round() * live)).collect();
        let table = classes(&groups);
        let of = strategies(&table, interval.exp2()).unwrap();
        for (_, variances) in &of.strategies {
            prop_assert!(variances.alloc >= of.least_alloc * (1.0 - 1e-6) - 1.0, "{of:?}");
        }
        // Geometric chances, with some of one class's samples moved to another class.
        let used: Vec<&ClassUse> = table.iter().filter(|of| of.objects > 0.0).collect();
        let size = |of: &ClassUse| of.bytes / of.objects;
        let mut chances: Vec<f64> = used
            .iter()
            .map(|of| -(size(of) * (-1.0 / interval.exp2()).ln_1p()).exp_m1())
            .collect();
        let (from, to) = (moved.0.index(used.len()), moved.1.index(used.len()));
        if from != to {
            let given = share * chances[from] * used[from].objects;
            chances[from] -= given / used[from].objects;
            chances[to] += given / used[to].objects;
        }
        if chances.iter().all(|p| *p <= 1.0) {
            let live: f64 = used
                .iter()
                .zip(&chances)
                .map(|(of, p)| of.live_objects * size(of).powi(2) * (1.0 - p) / p)
                .sum();
            // Near certainty, 1 − p has few significant digits.
            let rounding: f64 = used.iter().map(|of| 1e-9 * of.live_objects * size(of).powi(2)).sum();
            prop_assert!(live >= of.least_live * (1.0 - 1e-6) - rounding, "{live} {}", of.least_live);
        }
    }
}
