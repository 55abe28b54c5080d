//! Growth of simulated programs: how often a steady one is reported as leaking, how often bounds
//! miss, and how soon a leak is found. `cargo test --test leaks -- --nocapture` prints the table.

mod common;

use common::SplitMix;
use sampler_common::estimate::{Confidence, Reference, Sample, Turnover};
use sampler_common::leaks::{Blocks, Ranking, Times};
use sampler_common::sampling::Rate;

const INTERVAL: u64 = 64 << 10;
const RUNS: u32 = 300;
/// 5 % of 300 runs are 15. This many come by chance once in a million times (binomial).
const MAX_FALSE: u32 = 38;

/// A stack in a period, with one size of blocks: mean number of blocks that come and stay, and of
/// older blocks that go.
struct Stack {
    size: u64,
    arrived: f64,
    departed: f64,
}

/// A Poisson number, by counting exponentials; above 200 by the normal law.
fn poisson(mean: f64, random: &mut SplitMix) -> u64 {
    if mean > 200.0 {
        let angle = std::f64::consts::TAU * random.uniform();
        let normal = (-2.0 * random.uniform().ln()).sqrt() * angle.cos();
        return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
    }
    let (mut sum, mut count) = (-random.uniform().ln(), 0);
    while sum < mean {
        sum -= random.uniform().ln();
        count += 1;
    }
    count
}

/// Samples of blocks that come as a Poisson process, and the true bytes.
fn turnover(size: u64, blocks: f64, random: &mut SplitMix) -> (Turnover, f64) {
    let sample = Sample::geometric(size, Rate::from_interval(INTERVAL).expect("an interval"));
    let inclusion = sample.inclusion().expect("not a stride");
    let sampled = poisson(blocks * inclusion, random);
    let unsampled = poisson(blocks * (1.0 - inclusion), random);
    let mut of = Turnover::default();
    (0..sampled).for_each(|_| of.add_sample(&sample));
    (of, (sampled + unsampled) as f64 * size as f64)
}

/// Result of a run: whether a stack that does not grow was named, whether a bound missed the truth,
/// whether all leaks were named.
struct Run {
    falsely: bool,
    missed: bool,
    found: bool,
}

fn run(program: &[Stack], random: &mut SplitMix) -> Run {
    let mut truths = Vec::new();
    let mut stacks = Vec::new();
    for (index, stack) in program.iter().enumerate() {
        let (arrived, arrived_bytes) = turnover(stack.size, stack.arrived, random);
        let (departed, departed_bytes) = turnover(stack.size, stack.departed, random);
        if arrived.samples + departed.samples > 0 {
            truths.push((index, arrived_bytes - departed_bytes));
            stacks.push(Blocks { arrived, departed, ..Blocks::default() });
        }
    }
    let reference = Reference { interval_bytes: INTERVAL as f64, ..Reference::default() };
    let (others, times) = (Blocks::default(), Times::default());
    let of = Ranking::new(stacks, &others, &reference, &times, Confidence::DEFAULT, 0);
    let mut run = Run { falsely: false, missed: false, found: true };
    for (place, grown) in &of.ranked {
        let (index, truth) = truths[*place];
        let leaks = program[index].arrived > program[index].departed;
        run.falsely |= grown.is_growing() && !leaks;
        run.missed |= truth < grown.growth.low || truth > grown.growth.high;
        run.found &= grown.is_growing() || !leaks;
    }
    run
}

/// Stacks whose blocks come as often as they go, with few and many, small and large blocks.
fn steady() -> Vec<Stack> {
    let mut stacks = Vec::new();
    for size in [16, 200, 4096, 50_000, 300_000, 4 << 20] {
        // Expected samples. Each size has rows of few and of many.
        for samples in [0.3, 1.0, 3.0, 10.0, 30.0, 120.0] {
            let rate = Rate::from_interval(INTERVAL).expect("an interval");
            let blocks = samples / rate.inclusion(size);
            for _ in 0..4 {
                stacks.push(Stack { size, arrived: blocks, departed: blocks });
            }
        }
    }
    stacks
}

/// Number of runs for each result of [`Run`].
fn counted(program: &[Stack], seed: u64) -> [u32; 3] {
    let mut random = SplitMix(seed);
    let mut counts = [0; 3];
    for _ in 0..RUNS {
        let Run { falsely, missed, found } = run(program, &mut random);
        for (count, so) in counts.iter_mut().zip([falsely, missed, found]) {
            *count += u32::from(so);
        }
    }
    counts
}

#[test]
fn a_steady_program_is_seldom_said_to_leak() {
    let program = steady();
    let [falsely, missed, _] = counted(&program, 1);
    eprintln!(
        "{} steady stacks, {RUNS} runs: {falsely} named one, {missed} missed one",
        program.len()
    );
    assert!(falsely <= MAX_FALSE && missed <= MAX_FALSE, "{falsely} and {missed} of {RUNS}");
}

/// Nearly every block is sampled here, and the program is as steady.
#[test]
fn steady_large_blocks_are_seldom_named_as_a_leak() {
    let stack = |_| Stack { size: 8 << 20, arrived: 6.0, departed: 6.0 };
    let program: Vec<Stack> = (0..50).map(stack).collect();
    let [falsely, missed, _] = counted(&program, 2);
    eprintln!("50 stacks of large blocks: {falsely} named one, {missed} missed one");
    assert!(falsely <= MAX_FALSE && missed <= MAX_FALSE, "{falsely} and {missed} of {RUNS}");
    // Negative control: without the variance of coming and going, chance is taken for growth.
    let mut random = SplitMix(3);
    let naive = (0..RUNS).filter(|_| {
        program.iter().any(|stack| {
            let [(arrived, _), (departed, _)] = [stack.arrived, stack.departed]
                .map(|blocks| turnover(stack.size, blocks, &mut random));
            arrived.sum > departed.sum
        })
    });
    assert_eq!(naive.count(), RUNS as usize);
}

#[test]
fn a_leak_is_found_and_its_bounds_are_true() {
    let mut program = steady();
    // A leak of a quarter of what comes in the largest steady stacks, and a leak of large blocks.
    program.push(Stack { size: 200, arrived: 30.0 * INTERVAL as f64 / 200.0, departed: 0.0 });
    program.push(Stack { size: 300_000, arrived: 45.0, departed: 5.0 });
    let [falsely, missed, found] = counted(&program, 4);
    eprintln!("with two leaks: {falsely} named another, {missed} missed one, {found} found both");
    assert!(falsely <= MAX_FALSE && missed <= MAX_FALSE, "{falsely} and {missed} of {RUNS}");
    assert!(found >= RUNS * 9 / 10, "both found in {found} of {RUNS}");
}
