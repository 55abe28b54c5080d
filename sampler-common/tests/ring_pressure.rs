//! Estimates under ring pressure: the rate of later calls follows from earlier samples, without any
//! bias. The rate falls no further than allowed. Records that then find no room lose their stacks
//! and keep their sizes. `cargo test --test ring_pressure -- --nocapture` prints the table.

mod common;

use common::{Local, SplitMix};
use sampler_common::estimate::{Confidence, RowMoments, Sample, weighted};
use sampler_common::sampling::ring_pressure::{FINE_INTERVAL_BYTES, MAX_FACTOR, level};
use sampler_common::sampling::{Decision, Design, Random as _, Strategy, decide};

const RUNS: u32 = 1500;
const CALLS: u32 = 20_000;
const RING: u64 = 16 << 20;
const RECORD: u64 = 16 << 10;
const SIZES: [u64; 4] = [8, 64, 700, 20_000];

/// A program whose records wait in a ring.
struct Storm {
    design: Design,
    /// Number of calls after which the daemon reads a record; 0: never.
    reads: u32,
}

/// Result of one run: the ratio of the estimated bytes to the truth, whether the interval covers
/// the truth, the highest level.
fn run(storm: &Storm, random: &mut SplitMix) -> (f64, bool, u32) {
    let (countdown, position) = (Local::default(), Local::default());
    let (mut waiting, mut highest, mut truth) = (0u64, 0, 0.0);
    let mut design = storm.design;
    let mut row = RowMoments::default();
    for call in 1..=CALLS {
        let size = SIZES[random.below(SIZES.len())];
        truth += size as f64;
        if let Decision::Hit { hits, .. } = decide(design, size, &countdown, &position, random) {
            row.add_allocation(&Sample { hits, ..Sample::new(size, design) });
            if waiting + RECORD <= RING {
                waiting += RECORD;
            }
            let level = level(waiting, waiting, RING);
            highest = highest.max(level);
            design = storm.design.at_ring_level(level);
        }
        if storm.reads > 0 && call % storm.reads == 0 {
            waiting = waiting.saturating_sub(RECORD);
        }
    }
    let largest = design.interval().max(storm.design.at_ring_level(highest).interval());
    let most = (MAX_FACTOR as f64 * storm.design.interval()).max(FINE_INTERVAL_BYTES as f64);
    assert!(largest <= most * 1.01, "an interval of {largest}");
    let estimate =
        weighted(&row.alloc_space, largest, Confidence::new(0.99).expect("between 0 and 1"));
    (estimate.value / truth, estimate.low <= truth && truth <= estimate.high, highest)
}

#[test]
fn rates_at_ring_levels_leave_estimates_unbiased() {
    let mut random = SplitMix(7);
    random.next();
    let by_bytes: &[(u64, u32)] = &[(1, 0), (1, 100), (64, 0), (64, 30), (4096, 0)];
    let by_calls: &[(u64, u32)] = &[(1, 0), (1, 100), (16, 0)];
    for (strategy, cases) in [
        (Strategy::Geometric, by_bytes),
        (Strategy::Poisson, by_bytes),
        (Strategy::Bernoulli, by_calls),
    ] {
        for (interval, reads) in cases.iter().copied() {
            let design = Design::from_interval(strategy, interval, 1.0).expect("in the domain");
            let storm = Storm { design, reads };
            let (mut sum, mut squares, mut held, mut highest) = (0.0, 0.0, 0, 0);
            for _ in 0..RUNS {
                let (ratio, holds, level) = run(&storm, &mut random);
                sum += ratio;
                squares += ratio * ratio;
                held += u32::from(holds);
                highest = highest.max(level);
            }
            let runs = f64::from(RUNS);
            let mean = sum / runs;
            let spread = (squares / runs - mean * mean).max(0.0).sqrt();
            let share = f64::from(held) / runs;
            println!(
                "{strategy:?} {interval} {reads}: {mean:.4} ± {spread:.4}, {share:.3}, level {highest}"
            );
            // Five standard deviations of the mean are exceeded by chance once in a million runs.
            assert!((mean - 1.0).abs() <= 5.0 * spread / runs.sqrt() + 1e-9, "biased");
            assert!(highest > 0, "level {highest}");
            assert!(share > 0.96, "the interval holds the truth in {share} of the runs");
        }
    }
}
