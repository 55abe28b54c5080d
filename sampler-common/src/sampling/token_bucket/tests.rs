use super::super::{Cell, Random, Trial, trial};
use super::*;
use crate::limits::{LIBRARY_ACCEPTED_PER_SECOND, LIBRARY_PER_SECOND, PRELOADED_PER_SECOND};
use proptest::prelude::*;
use std::cell::Cell as Plain;
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// A second as the eBPF program counts it.
const WINDOW_NS: u64 = 1 << 30;
/// Steps of the coarse clock, nanoseconds: 100 in a second at least.
const TICK_NS: u64 = 10_000_000;

struct Countdown(Plain<i64>);

impl Cell for Countdown {
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.0.replace(self.0.get().wrapping_sub(amount))
    }

    fn swap(&self, value: i64) -> i64 {
        self.0.replace(value)
    }
}

/// splitmix64
struct Dice(u64);

impl Random for Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }
}

/// A program that has loaded the library.
struct Process {
    requested: Rate,
    rate: Rate,
    period_ns: u64,
    until_ns: u64,
    now_ns: u64,
    countdown: Countdown,
    dice: Dice,
    /// When the latest samples were taken.
    taken_ns: VecDeque<u64>,
    /// Most samples in one second of the kernel side, at any start of the second.
    most: usize,
}

impl Process {
    fn new(interval_bytes: u64, limit: u64, seed: u64) -> Process {
        let requested = Rate::from_interval(interval_bytes).unwrap();
        Process {
            requested,
            rate: requested,
            period_ns: SECOND_NS / limit,
            until_ns: 0,
            now_ns: SECOND_NS,
            countdown: Countdown(Plain::new(0)),
            dice: Dice(seed),
            taken_ns: VecDeque::new(),
            most: 0,
        }
    }

    /// Charges a request. A sample returns its weight and its variance.
    fn request(&mut self, size: u64) -> Option<(f64, f64)> {
        let charged = self.rate;
        let Trial::Hit { .. } = trial(&self.countdown, charged.charge(size), &mut self.dice) else {
            return None;
        };
        let coarse_ns = self.now_ns / TICK_NS * TICK_NS;
        self.until_ns = take(self.until_ns, coarse_ns, self.period_ns);
        self.rate = rate(self.requested, level(self.until_ns, coarse_ns, self.period_ns));
        self.taken_ns.push_back(self.now_ns);
        while self.taken_ns.front().is_some_and(|first| self.now_ns - first >= WINDOW_NS) {
            self.taken_ns.pop_front();
        }
        self.most = self.most.max(self.taken_ns.len());
        let (weight, inclusion) = (size as f64 / charged.inclusion(size), charged.inclusion(size));
        Some((weight, weight * weight * (1.0 - inclusion)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a process requests, at any speed and any interval, no second has a sample too many.
    #[test]
    fn samples_per_second_stay_below_the_accepted_limit(
        interval in prop::sample::select(vec![1u64, 64, 4096, 64 << 10, 512 << 10]),
        phases in prop::collection::vec((1u64..2_000_000, 100u64..200_000, 1usize..60_000), 1..6),
        seed: u64,
    ) {
        let mut process = Process::new(interval, LIBRARY_PER_SECOND, seed);
        for (size, pause_ns, requests) in phases {
            for _ in 0..requests {
                process.now_ns += pause_ns;
                process.request(size);
            }
        }
        prop_assert!((process.most as u64) < LIBRARY_ACCEPTED_PER_SECOND, "{}", process.most);
    }

    /// The debt never exceeds the highest level, whatever clock and limit were before.
    #[test]
    fn every_level_falls_to_0_in_time(until: u64, now in 0u64..1 << 62, period in 1u64..=MAX_PERIOD_NS) {
        let until = take(until, now, period);
        prop_assert!(until > now && level(until, now, period) <= MAX_LEVEL);
        let paid = now + burst_ns(period) + 34 * doubling_ns(period);
        prop_assert!(until <= paid && level(until, paid, period) == 0);
    }
}

#[test]
fn a_flood_is_cut_to_the_limit_and_the_rate_recovers() {
    for limit in [10, 100, PRELOADED_PER_SECOND, LIBRARY_PER_SECOND] {
        let mut process = Process::new(4096, limit, 7);
        let run = |process: &mut Process, pause_ns: u64, seconds: u64| {
            let end = process.now_ns + seconds * SECOND_NS;
            let mut samples = 0;
            while process.now_ns < end {
                process.now_ns += pause_ns;
                samples += u64::from(process.request(64).is_some());
            }
            samples
        };
        // The requested rate gives 78,000 samples a second.
        run(&mut process, 200, if limit < 100 { 30 } else { 3 });
        let samples = run(&mut process, 200, 10);
        let expected = 10 * limit;
        assert!(
            (expected * 3 / 4..expected * 5 / 4 + 8).contains(&samples),
            "{samples} at {limit}"
        );
        assert!(process.rate < process.requested);
        // Twice the time in which the largest debt is paid: the first sample then restores the
        // requested rate.
        process.now_ns += 2 * (burst_ns(process.period_ns) + 33 * doubling_ns(process.period_ns));
        while process.request(64).is_none() {}
        assert_eq!(process.rate, process.requested);
    }
}

/// Estimates of bursts through which the rate falls and rises, for blocks of several sizes that
/// come at different times of each burst. Estimates by the requested rate, in place of the charged
/// one, are wrong.
#[test]
fn estimates_are_unbiased_while_the_rate_changes() {
    const RUNS: u64 = 300;
    const SIZES: [u64; 4] = [48, 700, 20_000, 300_000];
    let mut sums = [(0.0, 0.0, 0.0); SIZES.len()];
    for run in 0..RUNS {
        let mut process = Process::new(16 << 10, 200, run << 32 | 1);
        for step in 0..12_000u64 {
            // Bursts take a tenth of the time. Between them the program allocates little.
            let is_calm = step % 4_000 > 400;
            process.now_ns += if is_calm { 900_000 } else { 2_000 };
            for (at, (size, of)) in SIZES.into_iter().zip(&mut sums).enumerate() {
                if step % 40 < 1 << at {
                    continue;
                }
                of.0 -= size as f64;
                of.2 -= size as f64;
                if let Some((weight, variance)) = process.request(size) {
                    of.0 += weight;
                    of.1 += variance;
                    of.2 += size as f64 / process.requested.inclusion(size);
                }
            }
        }
    }
    for ((error, variance, wrong), size) in sums.into_iter().zip(SIZES) {
        let [deviations, wrong] = [error, wrong].map(|of: f64| of / f64::sqrt(variance));
        assert!(deviations.abs() < 4.0 && wrong < -5.0, "{size}: {deviations}, {wrong}");
    }
}

/// A debt at a small limit is no flood at a larger one.
#[test]
fn a_debt_is_as_many_tokens_with_a_shorter_period() {
    let (now, slow, fast) = (1_000_000_000, 50_000_000, 333_333);
    let mut until = 0;
    for _ in 0..70 {
        until = take(until, now, slow);
    }
    assert_eq!(level(until, now, slow), 6);
    assert!(level(until, now, fast) > 30);
    let after = with_period(until, now, slow, fast);
    assert_eq!((after - now) / fast, 70);
    assert_eq!(level(after, now, fast), 0);
    assert_eq!(with_period(until, now, fast, slow), until);
    assert_eq!(with_period(5, now, slow, fast), 5);
}
