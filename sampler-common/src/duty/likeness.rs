//! How long a window would have been but for the chance of its ticks.
//!
//! # Derivation
//!
//! A window ends with its c-th tick in the program's own code. Where traps take the part t of its time, only one tick in 1/(1 − t) falls there, by chance: what is done until
//! then varies by t/c of its square, whatever the program does. In a loop of nothing but malloc that is a third, with three ticks; and a correction of 1/(1 − x), x being what
//! traps have added to such a time, is too large on average, however right x is as a mean.
//!
//! So the time for each allocation is drawn to that of all windows of its kind, r̄, by as much as chance is of what windows differ in: with v what they differ in beside chance,
//!
//! ```text
//! ln r̃ = ln r̄ + v/(v + t/c) · (ln r − ln r̄)
//! ```
//!
//! (B. Efron, C. Morris, "Stein's estimation rule and its competitors", Journal of the American Statistical Association 68, 1973). v is what squared distances from the mean rate have beyond
//! chance, each weighed by how well it is known, with as much of what is usual beside as one good window tells.

use super::pace::Counts;
use super::{Group, Pace};

/// What windows usually differ in, of the square of their mean; and the chance of a window that tells as much as is known before.
const USUAL: f64 = 0.05;
const OF_USUAL: f64 = 0.1;

/// Nanoseconds of the clock that a window is expected to have had, by what it counted and by the windows before it.
pub(super) fn expected_ns(before: &[Group], counts: &Counts) -> f64 {
    if counts.chance <= 0.0 || counts.clock_ns <= 0.0 || counts.allocations <= 0.0 {
        return counts.clock_ns;
    }
    let mut all = Pace::default();
    before.iter().for_each(|group| all.add(&group.pace));
    let kind = counts.kind();
    let clock_ns = all.clock_ns[kind] + counts.clock_ns;
    let mean_ns = clock_ns / (all.allocations[kind] + counts.allocations) * counts.allocations;
    let differs = between(before, &all);
    let own = differs / (differs + counts.chance);
    mean_ns * (counts.clock_ns / mean_ns).powf(own)
}

/// Variance of rates between windows, of the square of their mean, without chance.
fn between(groups: &[Group], all: &Pace) -> f64 {
    let n = groups.len() as f64;
    let weight = |chance: f64| (USUAL + chance).powi(-2);
    let mut sums = (USUAL * weight(OF_USUAL), weight(OF_USUAL));
    for group in groups.iter().filter(|group| group.windows > 0) {
        let of_kind = |kind: usize| {
            let rate = all.allocations[kind] / all.clock_ns[kind];
            if rate > 0.0 { rate * group.pace.clock_ns[kind] } else { 0.0 }
        };
        let mean = of_kind(0) + of_kind(1);
        if mean <= 0.0 || n < 2.0 {
            continue;
        }
        let off = group.pace.allocations.iter().sum::<f64>() / mean - 1.0;
        let windows = f64::from(group.windows);
        // Of one window, as far as they differ by themselves.
        let chance = windows * group.pace.chance();
        let differs = windows * off * off * n / (n - 1.0) - chance;
        sums.0 += windows * weight(chance) * differs;
        sums.1 += windows * weight(chance);
    }
    (sums.0 / sums.1).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::waits::Waits;
    use super::super::{Counted, Groups, Usual};
    use super::*;
    use crate::limits::CLASSES;

    /// A loop of 34 ns for each allocation, to which traps add 41.
    const OWN_NS: f64 = 34.0;
    const EACH_NS: f64 = 75.0;
    const TICK_NS: f64 = 250_000.0;
    const TICKS: u64 = 3;

    /// A window of three ticks that come by chance, as of a Poisson process.
    fn window(waits: &mut Waits, each_ns: f64) -> Counts {
        let clock_ns = TICKS as f64 * TICK_NS;
        let chance = (TICKS as f64).recip();
        let allocations = (waits.of(TICKS) * TICK_NS / each_ns).round();
        Counts { clock_ns, chance, allocations, frees: None, more: 0.0 }
    }

    fn add(groups: &mut Groups, counts: &Counts, pace: Pace) {
        let objects = [0; CLASSES];
        groups.add(1000, 0.01, &objects, &objects, pace, Counted::default());
        assert_eq!(pace.allocations[0], counts.allocations);
    }

    /// What windows are estimated to have had of what they have, each by its own time and by what is expected.
    fn corrected(n: usize) -> [f64; 2] {
        // All that traps can add they add in such a time.
        let usual = Usual { median_ns: EACH_NS - OWN_NS, spread: 0.3, power: 0.0, floor_ns: 0.0 };
        let (mut groups, mut waits, mut sums) = (Groups::new(usual), Waits(1), [0.0; 3]);
        for _ in 0..n {
            let counts = window(&mut waits, EACH_NS);
            let pace = groups.pace(&counts);
            let by = [Pace::of_window(&counts, counts.clock_ns, &usual), pace];
            let of = by.map(|pace| counts.allocations * pace.factor([usual.median_ns, 0.0]));
            sums =
                [sums[0] + of[0], sums[1] + of[1], sums[2] + counts.allocations * EACH_NS / OWN_NS];
            add(&mut groups, &counts, pace);
        }
        [sums[0] / sums[2], sums[1] / sums[2]]
    }

    #[test]
    fn what_is_corrected_by_so_few_ticks_is_not_too_much() {
        let [by_own, by_expected] = corrected(400);
        assert!(by_own > 1.15 && (0.95..1.05).contains(&by_expected), "{by_own} {by_expected}");
        // The first ones of a process are not much worse.
        assert!((0.8..1.25).contains(&corrected(20)[1]), "{:?}", corrected(20));
    }

    #[test]
    fn what_windows_differ_in_beside_chance_is_theirs() {
        let (mut groups, mut waits) = (Groups::default(), Waits(1));
        for at in 0..60 {
            // Two phases, in windows of many ticks.
            let each_ns = if at % 3 == 0 { 60.0 } else { 600.0 };
            let counts = Counts { chance: 0.01, ..window(&mut waits, each_ns) };
            let allocations = counts.clock_ns / each_ns;
            let counts = Counts { allocations, ..counts };
            let pace = groups.pace(&counts);
            let expected = expected_ns(&groups.iter().cloned().collect::<Vec<_>>(), &counts);
            assert!(at < 9 || (expected / counts.clock_ns - 1.0).abs() < 0.1, "{at}: {expected}");
            add(&mut groups, &counts, pace);
        }
    }

    #[test]
    fn where_nothing_is_left_to_chance_nothing_else_is_expected() {
        let counts = Counts { clock_ns: 5e5, allocations: 7.0, ..Counts::default() };
        assert_eq!(expected_ns(&[Group::default()], &counts), 5e5);
        let none = Counts { allocations: 0.0, chance: 0.5, ..counts };
        assert_eq!(expected_ns(&[], &none), 5e5);
    }
}
