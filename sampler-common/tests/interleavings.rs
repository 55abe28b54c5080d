//! The countdown under every interleaving of preempted handlers: one winner for each crossing, no
//! stuck cell, no overflow. Broken rules must fail. Two of them come from prototypes.
//! `schedules.rs` tests that no schedule biases the countdown.

mod common;
#[path = "common/explore.rs"]
mod explore;

use std::collections::HashSet;

use common::SplitMix;
use explore::{Operation, Rule, Thread, World};
use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE};
use sampler_common::sampling::{Cell, Random, Trial, draw, trial};

const RULE: Rule = |cell, hazard, random| trial(cell, hazard, random);

/// Rule of a prototype. The draw is added to the rest, which may stay below 0, where nobody
/// refills.
const ADDS_TO_THE_REST: Rule = |cell, hazard, random| {
    let left = cell.fetch_sub(hazard as i64);
    if left > hazard as i64 || left <= 0 {
        return Trial::Miss;
    }
    cell.fetch_sub(-(draw(random.next()) as i64));
    Trial::Hit { rest: left as u64 }
};

/// Rule of another prototype. Only the winner refills, so a cell that starts at 0 never runs.
const ONLY_THE_WINNER_REFILLS: Rule = |cell, hazard, random| {
    let left = cell.fetch_sub(hazard as i64);
    if left > hazard as i64 {
        return Trial::Miss;
    }
    let fresh = draw(random.next());
    if left > 0 {
        cell.swap(fresh as i64);
        return Trial::Hit { rest: left as u64 };
    }
    if fresh > hazard { Trial::Miss } else { Trial::Hit { rest: fresh } }
};

/// A rule that reads, then writes.
const NOT_ATOMIC: Rule = |cell, hazard, random| {
    let left = cell.fetch_sub(0);
    if left > hazard as i64 {
        cell.swap(left - hazard as i64);
        return Trial::Miss;
    }
    cell.swap(draw(random.next()) as i64);
    if left > 0 { Trial::Hit { rest: left as u64 } } else { Trial::Miss }
};

/// Start values: never started, running, just crossed, deep below, impossible.
const STARTS: [i64; 9] = [
    0,
    1,
    (HAZARD_ONE / 2) as i64,
    HAZARD_ONE as i64 * 3,
    -1,
    -(HAZARD_CERTAIN as i64),
    -(1 << 60),
    i64::MIN,
    i64::MAX,
];

fn running(value: i64) -> bool {
    value > 0 && value as u64 <= HAZARD_CERTAIN
}

/// A condition at the end of an interleaving that began with the cell at a start value.
type Check = fn(Rule, i64, &World) -> Result<(), String>;

/// At most one trial takes a countdown to its end.
fn one_winner(_: Rule, _: i64, world: &World) -> Result<(), String> {
    let (mut begun, mut won) = (HashSet::new(), false);
    for event in &world.events {
        if let Operation::Store(_) = event.operation {
            won = false; // another countdown
        }
        let result = world.threads[event.thread].results[event.trial];
        if begun.insert((event.thread, event.trial))
            && running(event.before)
            && result != Trial::Miss
        {
            if won {
                return Err(format!("two winners: {:?}", world.events));
            }
            won = true;
        }
    }
    Ok(())
}

/// The trial that subtracts past the last positive value wins the countdown. A stored value is a
/// countdown or 0.
fn the_crossing_wins(_: Rule, _: i64, world: &World) -> Result<(), String> {
    for event in &world.events {
        let result = world.threads[event.thread].results[event.trial];
        let wrong = match event.operation {
            Operation::Store(value) => value != 0 && !running(value),
            Operation::Subtract(_) if !running(event.before) => false,
            Operation::Subtract(hazard) if event.before > hazard => result != Trial::Miss,
            Operation::Subtract(_) => result != Trial::Hit { rest: event.before as u64 },
        };
        if wrong {
            return Err(format!("{event:?} ended as {result:?}"));
        }
    }
    Ok(())
}

/// No value is lower than what the threads can have subtracted between their two operations.
fn stays_near(_: Rule, start: i64, world: &World) -> Result<(), String> {
    let deepest = -((world.threads.len() + 1) as i64 * HAZARD_CERTAIN as i64);
    match world.events.iter().find(|event| event.before < deepest) {
        Some(event) if start >= deepest => Err(format!("fell to {}", event.before)),
        _ => Ok(()),
    }
}

/// Without other threads, the cell is a running countdown after a few calls of nearly no hazard.
fn recovers(rule: Rule, _: i64, world: &World) -> Result<(), String> {
    let mut after = World::new(world.value, vec![Thread::new(&[1; 3], 99)]);
    after.follow(rule, &mut |_, _| 0);
    if running(after.value) { Ok(()) } else { Err(format!("stuck at {}", after.value)) }
}

/// Checks every interleaving of two and three threads, for many hazards, draws and start values.
fn check_ends(rule: Rule, check: Check) -> Result<u64, String> {
    let mut random = SplitMix(11);
    let (mut ends, mut result) = (0, Ok(()));
    for round in 0..120 {
        let mut hazards = [0u64; 4];
        for hazard in &mut hazards {
            *hazard = match random.below(5) {
                0 => HAZARD_CERTAIN,
                1 => HAZARD_ONE >> random.below(20),
                _ => (random.uniform() * 2.0 * HAZARD_ONE as f64) as u64 + 1,
            };
        }
        let programs: &[&[u64]] = match round % 3 {
            0 => &[&hazards[..2], &hazards[2..]],
            1 => &[&hazards[..1], &hazards[1..2], &hazards[2..3]],
            _ => &[&hazards[..1], &hazards[1..]],
        };
        let threads: Vec<Thread> =
            programs.iter().map(|hazards| Thread::new(hazards, random.next())).collect();
        for start in STARTS {
            World::new(start, threads.clone()).every_end(rule, &mut |world| {
                ends += 1;
                if result.is_ok() {
                    result = check(rule, start, world);
                }
            });
        }
    }
    result.map(|()| ends)
}

#[test]
fn every_interleaving_has_one_winner_and_recovers() {
    for check in [one_winner, the_crossing_wins, stays_near, recovers] as [Check; 4] {
        let ends = check_ends(RULE, check).unwrap();
        assert!(ends > 20_000, "only {ends} interleavings");
    }
}

#[test]
fn broken_rules_are_caught() {
    assert!(check_ends(NOT_ATOMIC, one_winner).is_err());
    assert!(check_ends(ADDS_TO_THE_REST, recovers).is_err());
    assert!(check_ends(ONLY_THE_WINNER_REFILLS, recovers).is_err());
}
