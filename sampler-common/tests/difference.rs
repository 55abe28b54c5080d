//! Differences of simulated profiles: how often chance alone is reported as a change, and how often
//! a change is found. `cargo test --test difference -- --nocapture` prints the tables.

mod common;
#[path = "common/population.rs"]
mod population;

use common::SplitMix;
use population::{INTERVAL, Population};
use sampler_common::estimate::{
    Confidence, Moments, RowMoments, Side, benjamini_hochberg, difference,
};
use sampler_common::sampling::Rate;

/// Samples of one run of a stack, taken at `interval`. Each group has `share` times as many blocks.
fn sampled(
    population: &Population,
    interval: u64,
    share: f64,
    random: &mut SplitMix,
) -> RowMoments {
    let rate = Rate::from_interval(interval).expect("in range");
    let mut row = RowMoments::default();
    for (size, count) in &population.groups {
        let (inclusion, count) = (rate.inclusion(*size), (*count as f64 * share).round());
        let miss = (-inclusion).ln_1p();
        let (mut at, mut hits) = (0.0, 0);
        loop {
            at += (random.uniform().ln() / miss).floor() + 1.0;
            if at > count {
                break;
            }
            hits += 1;
        }
        row.alloc_space.add_samples(hits, *size as f64, inclusion);
        row.alloc_objects.add_samples(hits, 1.0, inclusion);
    }
    row
}

/// A test of a difference, which returns p.
type Judge = fn(&Side, &Side) -> f64;

fn ours(a: &Side, b: &Side) -> f64 {
    difference(a, b, Confidence::DEFAULT).p
}

/// Negative control: the normal approximation, with the variances of both.
fn naive(a: &Side, b: &Side) -> f64 {
    let deviation = (a.moments.variance + b.moments.variance).sqrt();
    let z = (b.moments.sum - a.moments.sum).abs() / deviation;
    if z > 0.0 { (2.0 * normal_tail(z)).min(1.0) } else { 1.0 }
}

/// P(Z > z), by the continued fraction of Laplace; below 1 by the trapezoidal rule.
fn normal_tail(z: f64) -> f64 {
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    if z < 1.0 {
        let steps = 200;
        let width = z / f64::from(steps);
        let inner: f64 = (1..steps).map(|step| density(f64::from(step) * width)).sum();
        return 0.5 - width * (inner + 0.5 * (density(0.0) + density(z)));
    }
    let fraction = (1..=200).rev().fold(z, |below, k| z + f64::from(k) / below);
    density(z) / fraction
}

/// A stack: its allocations in A, and how many times as many there are in B.
struct Stack {
    population: Population,
    change: f64,
}

/// A program: stacks of every mix with few and many samples, and of few large blocks, nearly all of
/// which are sampled.
fn program() -> Vec<Stack> {
    let mut populations: Vec<Population> =
        [4.0, 10.0, 30.0, 100.0].into_iter().flat_map(Population::all).collect();
    for (mib, count) in [(2, 6), (2, 20), (3, 6), (3, 20), (4, 10), (4, 40)] {
        // Several stacks have this population.
        for _ in 0..4 {
            populations.push(Population { name: "few large", groups: vec![(mib << 20, count)] });
        }
    }
    populations.into_iter().map(|population| Stack { population, change: 1.0 }).collect()
}

/// p of the tested stacks, by index, in bytes or objects.
struct Run {
    tested: Vec<usize>,
    p: [Vec<f64>; 2],
}

/// Two profiles of a program and their comparison. B is sampled at half the interval.
fn run(program: &[Stack], judge: Judge, random: &mut SplitMix) -> Run {
    let mut run = Run { tested: vec![], p: [vec![], vec![]] };
    for (index, stack) in program.iter().enumerate() {
        let a = sampled(&stack.population, INTERVAL, 1.0, random);
        let b = sampled(&stack.population, INTERVAL / 2, stack.change, random);
        if a.alloc_space.samples.max(b.alloc_space.samples) < MIN_SAMPLES {
            continue;
        }
        run.tested.push(index);
        let of = |pick: fn(RowMoments) -> Moments| {
            let side = |row, interval| Side {
                moments: pick(row),
                interval_bytes: interval as f64,
                unseen: interval as f64,
                scale: 1.0,
            };
            judge(&side(a, INTERVAL), &side(b, INTERVAL / 2))
        };
        let bytes = of(|row| row.alloc_space);
        run.p[0].push(bytes);
        // Objects of one size are bytes in another unit.
        run.p[1].push(match stack.population.uniform() {
            true => bytes,
            false => of(|row| row.alloc_objects),
        });
    }
    run
}

/// Shares over all runs.
#[derive(Debug, Default)]
struct Shares {
    /// Runs with any false discovery.
    any_false: f64,
    /// Mean share of the discoveries that are false: the false discovery rate.
    false_discoveries: f64,
    /// Mean share of the real changes that are found.
    found: f64,
}

impl Shares {
    /// Adds a run in which each of `p`, adjusted or not, is compared with 5 %.
    fn add(&mut self, program: &[Stack], tested: &[usize], p: &[f64], runs: u32) {
        let changed = |index: &usize| program[*index].change != 1.0;
        let changes = (0..program.len()).filter(changed).count().max(1) as f64;
        let significant = tested.iter().zip(p).filter(|(_, p)| **p <= 0.05);
        let (real, chance): (Vec<usize>, Vec<usize>) =
            significant.map(|(index, _)| *index).partition(changed);
        let (real, chance, runs) = (real.len() as f64, chance.len() as f64, f64::from(runs));
        self.any_false += f64::from(u8::from(chance > 0.0)) / runs;
        self.false_discoveries += chance / (real + chance).max(1.0) / runs;
        self.found += real / changes / runs;
    }
}

/// Shares for bytes and for objects, each with adjusted p and with plain p.
fn shares(program: &[Stack], judge: Judge, runs: u32, seed: u64) -> [[Shares; 2]; 2] {
    let mut random = SplitMix(seed);
    let mut shares: [[Shares; 2]; 2] = Default::default();
    for _ in 0..runs {
        let run = run(program, judge, &mut random);
        for ([adjusted, plain], p) in shares.iter_mut().zip(&run.p) {
            adjusted.add(program, &run.tested, &benjamini_hochberg(p), runs);
            plain.add(program, &run.tested, p, runs);
        }
    }
    shares
}

/// Stacks with fewer samples on each of the two sides are not tested.
const MIN_SAMPLES: u64 = 5;

/// Without real changes every discovery is false, and the rate is the share of runs with a
/// discovery. A right implementation has a rate of at most 5 %: 87 of 1,000 runs or more happen
/// less than once in a million times (binomial).
#[test]
fn a_steady_program_shows_no_change() {
    let program = program();
    for [adjusted, plain] in shares(&program, ours, 1000, 1) {
        println!("steady: adjusted {adjusted:?}\n      unadjusted {plain:?}");
        assert!(adjusted.any_false < 0.087, "{adjusted:?}");
        // Negative control.
        assert!(plain.any_false > 0.3, "{plain:?}");
    }
    // Negative control: a block that one side missed is off by many standard deviations.
    for [adjusted, _] in shares(&program, naive, 1000, 1) {
        println!("steady, normal: {adjusted:?}");
        assert!(adjusted.any_false > 0.15, "{adjusted:?}");
    }
}

/// A quarter of the stacks changes. At least 95 % of the significant changes are real, and the
/// changes are found.
#[test]
fn real_changes_are_found() {
    let mut program = program();
    for (index, stack) in program.iter_mut().enumerate().filter(|(index, _)| index % 4 == 0) {
        // The changed stacks have 4, 10, 30 and 100 samples, six mixes each.
        stack.change = [8.0, 5.0, 0.25, 0.5][(index / 6).min(3)];
    }
    let [[bytes, _], [objects, _]] = shares(&program, ours, 200, 3);
    println!("changed: bytes {bytes:?}, objects {objects:?}");
    // The share of about 50 discoveries has a standard deviation below 0.04. The mean of 200 shares
    // has one below 0.003.
    assert!(bytes.false_discoveries < 0.065 && objects.false_discoveries < 0.065);
    assert!(bytes.found > 0.95, "{bytes:?}");
    assert!(objects.found > 0.8, "{objects:?}");
}

/// In each mix alone, p is at most 5 % in at most 5 % of the comparisons, and at most 1 % in at
/// most 1 %.
#[test]
fn p_values_keep_their_level_for_every_mix() {
    let runs = 1000;
    println!("{:12} {:>7} {:>7} {:>7} {:>7} {:>7}", "sizes", "samples", "5 %", "1 %", "5 %", "1 %");
    for expected in [5.0, 30.0] {
        let mut all = Population::all(expected);
        all.push(Population::new("all 1 MiB", &[(1 << 20, 1.0)], expected));
        all.push(Population::new("small, huge", &[(64, 8200.0), (4 << 20, 2.0)], expected));
        for population in all {
            let name = population.name;
            let program = [Stack { population, change: 1.0 }];
            let mut random = SplitMix(30);
            let mut below = [[0u32; 2]; 2];
            for _ in 0..runs {
                let run = run(&program, ours, &mut random);
                for (below, p) in below.iter_mut().zip(run.p) {
                    for (below, level) in below.iter_mut().zip([0.05, 0.01]) {
                        *below += u32::from(p.first().is_some_and(|p| *p <= level));
                    }
                }
            }
            let [bytes, objects] =
                below.map(|below| below.map(|count| f64::from(count) / f64::from(runs)));
            println!(
                "{name:12} {expected:7} {:7.3} {:7.3} {:7.3} {:7.3}",
                bytes[0], bytes[1], objects[0], objects[1]
            );
            for [five, one] in [bytes, objects] {
                // Five standard deviations of 1,000 runs. A few large blocks can be missed in few
                // ways only, hence a little more at 5 %.
                assert!(
                    five < 0.05 + 0.05 && one < 0.01 + 0.016,
                    "{name} {expected}: {five} {one}"
                );
            }
        }
    }
}
