//! Statements of heapprofd's document about its sampling, checked on the Poisson strategy as the
//! kernel runs it. Allocations that are hit with more than 99 % pass with their exact size, the
//! others count points. The older cut-off at the interval is a negative control. (Coverage by
//! interval and total: `plan.rs`.) `cargo test --test heapprofd -- --nocapture` prints the error
//! tables.

mod common;

use common::{Local, SplitMix, deviations};
use sampler_common::estimate::{Plan, RowMoments, Sample};
use sampler_common::sampling::{Decision, Design, Strategy, decide};

const KIB: u64 = 1 << 10;
const INTERVAL: u64 = 512 * KIB;
/// Standard deviations that a right implementation exceeds in 10⁻⁶ of the runs, over all
/// comparisons here.
const LIMIT: f64 = 5.5;

/// A CPU with its design.
struct Machine {
    design: Design,
    /// Size from which requests are sampled without a decision: the older rule's, or none.
    cut_off: u64,
    countdown: Local,
    position: Local,
    random: SplitMix,
}

impl Machine {
    fn new(interval: u64, cut_off: u64, seed: u64) -> Machine {
        let design =
            Design::from_interval(Strategy::Poisson, interval, 1.0).expect("in the domain");
        Machine {
            design,
            cut_off,
            countdown: Local::default(),
            position: Local::default(),
            random: SplitMix(seed),
        }
    }

    /// The estimate of one request's bytes, if the request is sampled.
    fn request(&mut self, size: u64) -> Option<f64> {
        if size >= self.cut_off {
            return Some(size as f64);
        }
        match decide(self.design, size, &self.countdown, &self.position, &mut self.random) {
            Decision::Miss => None,
            Decision::Hit { hits, .. } => {
                let mut row = RowMoments::default();
                row.add_allocation(&Sample { hits, ..Sample::new(size, self.design) });
                Some(row.alloc_space.sum)
            }
        }
    }

    /// Measures `calls` requests: the share that is sampled, and mean and standard error of the
    /// estimate over the truth.
    fn measured(&mut self, size: u64, calls: u32) -> Measured {
        let (mut seen, mut sum, mut squares) = (0, 0.0, 0.0);
        let (mut error, mut error_if_seen) = (0.0, 0.0);
        for _ in 0..calls {
            let estimate = self.request(size);
            let relative = estimate.unwrap_or(0.0) / size as f64;
            seen += u64::from(estimate.is_some());
            sum += relative;
            squares += relative * relative;
            error += (relative - 1.0).abs();
            error_if_seen += if estimate.is_some() { (relative - 1.0).abs() } else { 0.0 };
        }
        let calls = f64::from(calls);
        let mean = sum / calls;
        let variance = (squares / calls - mean * mean).max(0.0);
        Measured {
            seen,
            share: seen as f64 / calls,
            mean,
            variance,
            standard_error: (variance / calls).sqrt(),
            error: error / calls,
            error_if_seen: error_if_seen / (seen as f64).max(1.0),
        }
    }
}

struct Measured {
    seen: u64,
    share: f64,
    mean: f64,
    variance: f64,
    standard_error: f64,
    error: f64,
    error_if_seen: f64,
}

const NONE: u64 = u64::MAX;
/// The smallest size that is hit with 99 %: R·ln 100.
const CERTAIN: u64 = 2_414_436;

#[test]
fn the_99_percent_rule_leaves_estimates_unbiased() {
    let mut machine = Machine::new(INTERVAL, NONE, 1);
    for size in
        [64 * KIB, INTERVAL - 1, INTERVAL, 1536 * KIB, CERTAIN - 1000, CERTAIN + 1000, 16 << 20]
    {
        let calls = 20_000;
        let of = machine.measured(size, calls);
        let hit = -(-(size as f64) / INTERVAL as f64).exp_m1();
        let off = (of.mean - 1.0) / of.standard_error.max(1e-12);
        if size > CERTAIN {
            assert_eq!((of.share, of.mean, of.variance), (1.0, 1.0, 0.0), "{size}");
        } else {
            assert!(
                deviations(of.seen, u64::from(calls), hit).abs() < LIMIT,
                "{size}: {}",
                of.share
            );
            assert!(off.abs() < LIMIT, "{size}: mean {} is {off} deviations off", of.mean);
        }
    }
}

/// Negative control: the older cut-off, at the interval itself.
#[test]
fn coverage_jumps_at_the_older_cut_off() {
    let calls = 20_000;
    let coverage =
        |cut_off, size, seed| Machine::new(INTERVAL, cut_off, seed).measured(size, calls);
    // One byte below the interval is sampled 63 % of the time, the interval itself always: a jump
    // of 37 points.
    let below = coverage(INTERVAL, INTERVAL - 1, 2);
    let at = coverage(INTERVAL, INTERVAL, 3);
    assert!(deviations(below.seen, u64::from(calls), 1.0 - (-1f64).exp()).abs() < LIMIT);
    assert_eq!(at.share, 1.0);
    // With the present rule this step causes no jump. At the rule's own cut-off the jump is 1
    // point.
    let below = coverage(NONE, INTERVAL - 1, 4);
    let at = coverage(NONE, INTERVAL, 5);
    assert!((at.share - below.share).abs() < 0.03, "{} {}", below.share, at.share);
    let below = coverage(NONE, CERTAIN - 1, 6);
    assert!(deviations(below.seen, u64::from(calls), 0.99).abs() < LIMIT, "{}", below.share);
    assert_eq!(coverage(NONE, CERTAIN + 1, 7).share, 1.0);
    // Both rules are unbiased. The coverage jumps, and with it the variance.
    assert!(((coverage(INTERVAL, INTERVAL - 1, 8).mean - 1.0).abs()) < 0.05);
}

/// Negative control: with the older cut-off, coverage depended on how memory was divided into
/// allocations.
#[test]
fn the_older_cut_off_depends_on_the_block_size() {
    let seen = |cut_off, pieces: u64, seed| {
        let mut machine = Machine::new(INTERVAL, cut_off, seed);
        let calls = 20_000;
        let any = |_: &u32| {
            (0..pieces).filter(|_| machine.request(INTERVAL / pieces).is_some()).count() > 0
        };
        f64::from((0..calls).filter(any).count() as u32) / f64::from(calls)
    };
    // The interval's bytes at once are certain. In two halves they have 63 %.
    assert_eq!(seen(INTERVAL, 1, 10), 1.0);
    let halves = seen(INTERVAL, 2, 11);
    assert!((halves - 0.632).abs() < 0.02, "{halves}");
    // With the present rule both have 63 %.
    let (whole, halves) = (seen(NONE, 1, 12), seen(NONE, 2, 13));
    assert!((whole - 0.632).abs() < 0.02 && (halves - 0.632).abs() < 0.02, "{whole} {halves}");
}

/// E|K·R − s|/s for K points of mean s/R, by summing, and the same value under the condition K > 0.
fn expected_error(size: u64, interval: u64) -> (f64, f64) {
    let mean = size as f64 / interval as f64;
    let (mut probability, mut error) = ((-mean).exp(), 0.0);
    let unseen = probability;
    for points in 0..400u32 {
        error += probability * (f64::from(points) / mean - 1.0).abs();
        probability *= mean / f64::from(points + 1);
    }
    (error, (error - unseen) / (1.0 - unseen))
}

/// The expected-error charts as numbers, for totals of small allocations: computed, planned and
/// simulated.
#[test]
fn errors_are_within_the_computed_bounds() {
    println!("{:>10} {:>10} {:>8} {:>8} {:>8}", "interval", "bytes", "error", "if seen", "seen");
    for (index, interval) in [32 * KIB, 512 * KIB, 2048 * KIB].into_iter().enumerate() {
        for size in [256 * KIB, 1024 * KIB, 1536 * KIB, 3584 * KIB, 8192 * KIB] {
            let (error, if_seen) = expected_error(size, interval);
            let plan = Plan::new(interval, size, 1).expect("in the domain");
            println!(
                "{:>10} {:>10} {error:8.3} {if_seen:8.3} {:8.4}",
                interval,
                size,
                plan.hit_probability()
            );
            // Trials of one byte are nearly Poisson points.
            assert!((plan.relative_error() - error).abs() < 1e-4 * error);
            assert!((plan.relative_error_if_seen() - if_seen).abs() < 1e-3 * if_seen + 1e-4);
            // From 99 % on, the kernel's strategy is exact.
            let calls = 4000;
            let of = Machine::new(interval, NONE, 20 + index as u64).measured(size, calls);
            let certain = size as f64 >= interval as f64 * 100f64.ln();
            let (error, if_seen) = if certain { (0.0, 0.0) } else { (error, if_seen) };
            // The mean of 4,000 errors. Each error has a standard deviation below that of the
            // estimate.
            let slack = LIMIT * of.standard_error + 1e-9;
            assert!((of.error - error).abs() <= slack, "{interval} {size}: {} {error}", of.error);
            assert!(
                (of.error_if_seen - if_seen).abs() <= slack / of.share.max(0.05),
                "{interval} {size}: {} {if_seen}",
                of.error_if_seen
            );
        }
    }
}
