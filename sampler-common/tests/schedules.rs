//! The countdown is unbiased under every schedule of preempted handlers that does not depend on the
//! hidden number. Schedules are fixed, random, or adversarial: the last one sees all results and
//! does its worst.

mod common;
#[path = "common/explore.rs"]
mod explore;

use common::{KS_LIMIT, SplitMix, deviations, inclusion, kolmogorov_smirnov};
use explore::{Rule, Thread, World};
use sampler_common::sampling::rate::HAZARD_ONE;
use sampler_common::sampling::{Cell, Random, Trial, draw, trial};

const RULE: Rule = |cell, hazard, random| trial(cell, hazard, random);

/// A rule that starts a countdown after the call instead of before the call.
const FORGETS_TO_CHARGE: Rule = |cell, hazard, random| {
    let left = cell.fetch_sub(hazard as i64);
    if left > 0 {
        return if left > hazard as i64 { Trial::Miss } else { Trial::Hit { rest: left as u64 } };
    }
    cell.swap(draw(random.next()) as i64);
    Trial::Miss
};

/// Runs each schedule with many seeds. The frequencies of each hit, and of each pair of hits, must
/// be those of independent trials.
fn check_bias(rule: Rule, runs: u64) -> Result<(), String> {
    let hazards =
        [[0.7, 0.3], [1.1, 0.05]].map(|thread| thread.map(|h| (h * HAZARD_ONE as f64) as u64));
    let expected = hazards.as_flattened().iter().map(|h| inclusion(*h)).collect::<Vec<_>>();
    let mut random = SplitMix(5);
    for schedule in 0..256u32 {
        for start in 0..3 {
            let mut joint = [[0u64; 4]; 4];
            for _ in 0..runs {
                let value = [0, draw(random.next()) as i64, -(HAZARD_ONE as i64)][start];
                let threads = hazards.map(|h| Thread::new(&h, random.next())).to_vec();
                let mut world = World::new(value, threads);
                let mut bits = schedule;
                world.follow(rule, &mut |_, open| {
                    bits = bits.rotate_right(1);
                    open[(bits >> 31) as usize % open.len()]
                });
                let hits: Vec<bool> = world
                    .threads
                    .iter()
                    .flat_map(|t| &t.results)
                    .map(|r| *r != Trial::Miss)
                    .collect();
                for i in 0..4 {
                    for j in 0..=i {
                        joint[i][j] += u64::from(hits[i] && hits[j]);
                    }
                }
            }
            for i in 0..4 {
                for j in 0..=i {
                    let p = if i == j { expected[i] } else { expected[i] * expected[j] };
                    let z = deviations(joint[i][j], runs, p);
                    // 7,680 comparisons at 10⁻⁶ in all. Small counts have a longer upper tail.
                    if z.abs() > 6.3 + 20.0 / (runs as f64 * p).sqrt() {
                        return Err(format!(
                            "schedule {schedule:b} start {start} pair {i} {j}: {z}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_schedule_is_unbiased_and_independent() {
    check_bias(RULE, 1500).unwrap();
}

/// Long runs, with a random schedule or with one that inspects the results to do its worst.
fn long_run(seed: u64, spiteful: bool) {
    let mut random = SplitMix(seed);
    let small = HAZARD_ONE >> 7;
    let hazards = [small, 3 * small, HAZARD_ONE / 3, 2 * HAZARD_ONE];
    let (mut hits, mut rests) = ([0u64; 4], Vec::new());
    let mut value = 0;
    const ROUNDS: u64 = 12_000;
    for _ in 0..ROUNDS {
        let threads = (0..4).map(|_| Thread::new(&hazards, random.next())).collect();
        let mut world = World::new(value, threads);
        let mut choice = random.clone();
        world.follow(RULE, &mut |threads, open| {
            let hit = |i: usize| threads[i].results.last().is_some_and(|r| *r != Trial::Miss);
            // The schedule delays every refill as long as another thread can run, and lets the
            // refill in after a hit.
            let waiting = |i: &&usize| threads[**i].suspended() == open.iter().any(|j| hit(*j));
            match open.iter().find(waiting) {
                Some(chosen) if spiteful => *chosen,
                _ => open[choice.below(open.len())],
            }
        });
        random.next();
        value = world.value;
        for thread in &world.threads {
            for (index, result) in thread.results.iter().enumerate() {
                if let Trial::Hit { rest } = result {
                    assert!((1..=hazards[index]).contains(rest));
                    hits[index] += 1;
                    // Position of the sampled byte in the request: uniform in probability.
                    rests.push(inclusion(*rest) / inclusion(hazards[index]));
                }
            }
        }
    }
    for (hazard, hits) in hazards.iter().zip(hits) {
        let z = deviations(hits, 4 * ROUNDS, inclusion(*hazard));
        assert!(z.abs() < 5.5, "hazard {hazard}: {z} standard deviations");
    }
    let distance = kolmogorov_smirnov(rests);
    assert!(distance < KS_LIMIT, "rests: {distance}");
}

#[test]
fn a_schedule_at_random_is_unbiased() {
    long_run(21, false);
}

#[test]
fn a_schedule_that_looks_at_results_is_unbiased() {
    long_run(22, true);
}

#[test]
fn a_biased_rule_is_caught() {
    assert!(check_bias(FORGETS_TO_CHARGE, 300).is_err());
}
