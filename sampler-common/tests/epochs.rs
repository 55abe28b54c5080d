//! Programs that change their phase when the rate changes: intervals with epochs cover, intervals
//! without epochs do not.

mod common;
mod simulation;

use common::SplitMix;
use sampler_common::estimate::{
    Confidence, Estimate, Estimator, Reference, Row, RowEstimates, of_row,
};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{Design, Strategy};
use simulation::phases::{Blocks, Program, SHORT_LONG, programs};
use std::collections::BTreeMap;

/// This seed was not chosen by its result.
const SEED: u64 = 20;

/// Runs of each program.
const RUNS: u32 = 200;

/// Largest number of misses in [`RUNS`] at 5 %. More have a probability below 10⁻⁷.
const MAX_MISSES: u32 = 29;

fn quantities(of: &RowEstimates) -> [Estimate; 4] {
    [of.alloc_space, of.alloc_objects, of.inuse_space, of.inuse_objects]
}

const NAMES: [&str; 4] = ["bytes", "objects", "bytes held", "objects held"];

/// How often rows missed the truth, by quantity, with epochs and without.
#[derive(Clone, Copy, Default)]
struct Tally {
    missed: [u32; 4],
    missed_without_epochs: [u32; 4],
}

/// Judges sums of stacks under one estimator.
fn simulate(
    program: &Program,
    rows_of: &[Vec<usize>],
    estimator: Estimator,
    seed: u64,
) -> Vec<Tally> {
    let (empty, mut random) = (program.reference(), SplitMix(seed));
    let mut tallies = vec![Tally::default(); rows_of.len()];
    for _ in 0..RUNS {
        let (rows, reference) = program.run(&empty, &mut random);
        let no_epochs = Reference { epochs: BTreeMap::new(), ..reference.clone() };
        for (stacks, tally) in rows_of.iter().zip(&mut tallies) {
            let mut row = Row::default();
            stacks.iter().for_each(|stack| row.add(&rows[*stack]));
            let truth = program.truth(stacks);
            let made =
                |reference| quantities(&of_row(&row, reference, estimator, Confidence::DEFAULT));
            let (with, without) = (made(&reference), made(&no_epochs));
            for (quantity, truth) in truth.into_iter().enumerate() {
                let misses = |of: &Estimate| {
                    u32::from(of.low > truth * (1.0 + 1e-9) || truth > of.high * (1.0 + 1e-9))
                };
                tally.missed[quantity] += misses(&with[quantity]);
                tally.missed_without_epochs[quantity] += misses(&without[quantity]);
            }
        }
    }
    tallies
}

/// Every stack alone, sums over both phases, and all stacks but the last, which is the rest of the
/// program.
fn rows_of(stacks: usize) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = (0..stacks).map(|stack| vec![stack]).collect();
    rows.extend([vec![2, 5], vec![0, 4, 6, 7], (0..stacks - 1).collect()]);
    rows
}

/// Every pair of strategy and estimator that makes intervals.
fn pairs() -> impl Iterator<Item = (Strategy, Estimator)> {
    let strategies =
        [Strategy::Geometric, Strategy::Poisson, Strategy::Bernoulli, Strategy::Adaptive];
    strategies.into_iter().flat_map(|strategy| {
        let all = Estimator::ALL.into_iter();
        all.filter(move |of| of.check(strategy).is_ok()).map(move |of| (strategy, of))
    })
}

#[test]
fn rows_have_their_coverage_when_the_rate_changes() {
    let (mut cells, mut bad, mut worst, mut bad_before) = (0, Vec::new(), 0, 0);
    for (strategy, estimator) in pairs() {
        for (seed, (name, program)) in (SEED..).zip(programs(strategy)) {
            let rows = rows_of(program.stacks.len());
            for (of, tally) in rows.iter().zip(simulate(&program, &rows, estimator, seed)) {
                for (quantity, missed) in tally.missed.into_iter().enumerate() {
                    let before = tally.missed_without_epochs[quantity];
                    cells += 1;
                    worst = worst.max(missed);
                    bad_before += u32::from(before > MAX_MISSES);
                    if missed > MAX_MISSES {
                        let (pair, what) = ((strategy, estimator), NAMES[quantity]);
                        bad.push(format!(
                            "{pair:?}, {name}, {of:?}, {what}: {missed}, before {before}"
                        ));
                    }
                }
            }
        }
    }
    println!(
        "{cells} cells: at most {worst} of {RUNS} missed; without epochs {bad_before} are bad"
    );
    assert!(bad.is_empty(), "of {RUNS} runs missed:\n{}", bad.join("\n"));
    // Negative control: the same samples, judged as if all had one rate.
    assert!(bad_before > cells / 10, "{bad_before} of {cells}");
}

/// A single epoch equals no epochs, to the last bit.
#[test]
fn a_constant_rate_gives_the_estimates_without_epochs() {
    for (strategy, estimator) in pairs() {
        for (_, mut program) in programs(strategy) {
            program.thinned = false;
            program.designs = vec![program.designs[0]; program.designs.len()];
            program.stacks.iter_mut().flatten().for_each(|blocks| blocks.phase = 0);
            let mut empty = program.reference();
            empty.epochs.values_mut().for_each(|epochs| epochs.truncate(1));
            let (rows, reference) = program.run(&empty, &mut SplitMix(SEED));
            let no_epochs = Reference { epochs: BTreeMap::new(), ..reference.clone() };
            let rows =
                rows.iter().chain([&reference.row(), &Row::default()]).cloned().collect::<Vec<_>>();
            for row in rows {
                let made = |of| of_row(&row, of, estimator, Confidence::DEFAULT);
                assert_eq!(made(&reference), made(&no_epochs), "{strategy:?} {estimator:?}");
            }
        }
    }
}

/// A minute at a large interval, in which hardly anything was allocated, does not make all rows
/// wide.
#[test]
fn capacity_is_bounded_by_bytes_at_the_long_interval() {
    let design = |interval| {
        [Design::from_interval(Strategy::Geometric, interval, 1.0).expect("in the domain"); CLASSES]
    };
    let blocks = |phase, bytes: u64| Blocks { size: 64, phase, count: bytes / 64 };
    let program = Program {
        designs: SHORT_LONG.map(design).to_vec(),
        stacks: vec![vec![blocks(0, 1 << 30), blocks(1, 1 << 20)]],
        thinned: false,
    };
    let (_, reference) = program.run(&program.reference(), &mut SplitMix(SEED));
    let no_epochs = Reference { epochs: BTreeMap::new(), ..reference.clone() };
    let high = |of: &Reference| {
        of_row(&Row::default(), of, Estimator::Weighted, Confidence::DEFAULT).alloc_space.high
    };
    // The budget is ln 40 = 3.7 intervals. The mebibyte uses a sixteenth of one large interval, the
    // rest is of small intervals.
    let budget = 40f64.ln();
    let expected = 1048576.0 + 65536.0 * (budget - 1.0 / 16.0);
    assert!((high(&reference) / expected - 1.0).abs() < 1e-4, "{} {expected}", high(&reference));
    assert!(
        (high(&no_epochs) / (budget * SHORT_LONG[1] as f64) - 1.0).abs() < 1e-4,
        "{}",
        high(&no_epochs)
    );
}
