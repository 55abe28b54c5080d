//! How fast a program went in its windows, and what is left of it without the traps ([`super::Drag`]).

use super::Usual;
use super::drag::FREEING;

/// Of a window's time traps in functions that allocate add this part at most: 0.47 in programs that were surveyed; and in loops of nothing else, 0.55.
const MOST_OF_ALLOCATING: f64 = 0.6;
const MOST_IN_LOOPS: f64 = 0.8;
/// Hits may be corrected for up to this part of a window's time.
pub(super) const MOST_OF_TIME: f64 = 0.75;

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Nanoseconds of the clock: in windows in which only functions that allocate were probed, and in those in which functions that free were too.
    pub clock_ns: [f64; 2],
    /// Allocations.
    pub allocations: [f64; 2],
    /// As many as would add as much if each added all that a trap can: fewer in dense windows, more where samples are.
    traps: [f64; 2],
    /// The same of calls of functions that free, where they were probed.
    frees: f64,
    /// As `traps`, were no window dense.
    whole: f64,
    /// The same times how much [more](Usual::more_where_sparse) they may add in their window.
    sparse: f64,
    /// The clock's nanoseconds without the chance of ticks, as far as that is known ([`super::likeness`]): what windows are corrected by.
    expected_ns: f64,
    /// Variance of `clock_ns` by that chance, ns².
    chance: f64,
}

/// What was counted in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Nanoseconds of the clock.
    pub clock_ns: f64,
    /// Relative variance of that, by the chance of its ticks.
    pub chance: f64,
    /// Allocations.
    pub allocations: f64,
    /// Calls of functions that free, if these were probed.
    pub frees: Option<f64>,
    /// What else adds as much as so many more traps in functions that allocate: samples ([`Usual::TRAPS_OF_SAMPLE`]), and markers.
    pub more: f64,
}

impl Counts {
    /// Whether functions that free were probed, as an index.
    pub(super) fn kind(&self) -> usize {
        usize::from(self.frees.is_some())
    }
}

/// What windows that were corrected one by one are to be multiplied by where m and d turn out to be others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bend {
    /// What was seen, corrected: Σz.
    sum: f64,
    /// What of that stands for itself, whatever traps add: Σz·κ. The rest are Σy.
    seen: f64,
    /// Σy·A/o and Σy·F/o, o = t − mA − dF being the program's own time in a window.
    by: [f64; 2],
    /// Σy·(t − o)/o, of the m and d that each was corrected with: Σy·(mA + dF)/o, or what it was corrected for at most.
    with: f64,
}

impl Pace {
    /// Of a window that by all windows is expected to have been so long, nanoseconds of the clock.
    pub(super) fn of_window(counts: &Counts, expected_ns: f64, usual: &Usual) -> Pace {
        let (kind, clock_ns) = (counts.kind(), counts.clock_ns);
        let traps = counts.allocations + counts.more;
        let frees = counts.frees.unwrap_or(0.0);
        // Phases of nothing but frees have no more to lose.
        let most = traps.max(FREEING.0 * frees);
        let part = if most > 0.0 { usual.part(expected_ns / most) } else { 1.0 };
        let sparse =
            if traps > 0.0 { traps * usual.more_where_sparse(expected_ns / most) } else { 0.0 };
        let chance = counts.chance * clock_ns * clock_ns;
        let mut pace = Pace {
            frees: part * frees,
            whole: traps,
            sparse,
            expected_ns,
            chance,
            ..Pace::default()
        };
        pace.clock_ns[kind] = clock_ns;
        pace.allocations[kind] = counts.allocations;
        pace.traps[kind] = part * traps;
        pace
    }

    /// Of a window whose clock was not subject to chance.
    #[cfg(test)]
    pub(super) fn exact(
        clock_ns: f64,
        allocations: f64,
        frees: Option<f64>,
        more: f64,
        usual: &Usual,
    ) -> Pace {
        let counts = Counts { clock_ns, chance: 0.0, allocations, frees, more };
        Pace::of_window(&counts, clock_ns, usual)
    }

    /// Relative variance of the time in these windows by the chance of ticks.
    pub(super) fn chance(&self) -> f64 {
        let clock: f64 = self.clock_ns.iter().sum();
        if clock > 0.0 { self.chance / (clock * clock) } else { 0.0 }
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Pace) {
        for kind in 0..2 {
            self.clock_ns[kind] += other.clock_ns[kind];
            self.allocations[kind] += other.allocations[kind];
            self.traps[kind] += other.traps[kind];
        }
        self.frees += other.frees;
        self.whole += other.whole;
        self.sparse += other.sparse;
        self.expected_ns += other.expected_ns;
        self.chance += other.chance;
    }

    pub(super) fn without(&self, other: &Pace) -> Pace {
        let mut less = *self;
        for kind in 0..2 {
            less.clock_ns[kind] -= other.clock_ns[kind];
            less.allocations[kind] -= other.allocations[kind];
            less.traps[kind] -= other.traps[kind];
        }
        less.frees -= other.frees;
        less.whole -= other.whole;
        less.sparse -= other.sparse;
        less.expected_ns -= other.expected_ns;
        less.chance -= other.chance;
        less
    }

    /// The part of all that they can add that traps add, as a mean of all traps.
    pub(super) fn part(&self) -> f64 {
        if self.whole > 0.0 { self.traps.iter().sum::<f64>() / self.whole } else { 1.0 }
    }

    /// How much more than usual they may add because they are sparse, as a mean of all traps.
    pub(super) fn sparse(&self) -> f64 {
        if self.whole > 0.0 { self.sparse / self.whole } else { 0.0 }
    }

    /// d by the equations; `None` where they say nothing.
    pub(super) fn solved(&self) -> Option<f64> {
        let rate = |kind: usize| self.clock_ns[kind] / self.allocations[kind];
        let frees = self.frees / self.allocations[1];
        let drag = (rate(1) - rate(0)) / frees;
        (drag.is_finite() && frees > 0.1 * self.part()).then_some(drag)
    }

    /// What a trap in a function that allocates adds at most, nanoseconds.
    pub(super) fn most_ns(&self) -> f64 {
        let most = MOST_IN_LOOPS + (MOST_OF_ALLOCATING - MOST_IN_LOOPS) * self.part();
        most * self.expected_ns / self.traps.iter().sum::<f64>()
    }

    /// By what what was counted is to be multiplied, where traps add so much.
    pub fn factor(&self, [allocating, freeing]: [f64; 2]) -> f64 {
        let clock = self.expected_ns;
        let added = allocating * self.traps.iter().sum::<f64>() + freeing * self.frees;
        if clock <= 0.0 {
            return 1.0;
        }
        1.0 / (1.0 - (added / clock).clamp(0.0, MOST_OF_TIME))
    }

    /// The program's own time, where traps add so much, nanoseconds.
    pub(super) fn own_ns(&self, ns: [f64; 2]) -> f64 {
        self.clock_ns.iter().sum::<f64>() / self.factor(ns)
    }

    /// The window's share of its stratum's progress, of which it has this share by the clock: what traps have added is neither in the one nor in the other. (All of a stratum is all
    /// of it, whatever they add.)
    pub fn share(&self, by_clock: f64, ns: [f64; 2]) -> f64 {
        let own = by_clock / self.factor(ns);
        own / (1.0 - (by_clock - own)).max(own)
    }
}

impl Bend {
    /// Of a window of that [share](Pace::share) in which `sum` was seen, corrected for that much. What was seen stands for itself whatever traps add.
    pub fn of_window(sum: f64, share: f64, pace: &Pace, ns: [f64; 2]) -> Bend {
        let own = pace.expected_ns / pace.factor(ns);
        let seen = sum * share.min(1.0);
        let unseen = sum - seen;
        let each = |hits: f64| if own > 0.0 { unseen * hits / own } else { 0.0 };
        let by = [each(pace.traps.iter().sum()), each(pace.frees)];
        Bend { sum, seen, by, with: unseen * (pace.factor(ns) - 1.0) }
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Bend) {
        self.sum += other.sum;
        self.seen += other.seen;
        self.by.iter_mut().zip(other.by).for_each(|(to, from)| *to += from);
        self.with += other.with;
    }

    /// What was seen, where traps add so much.
    pub fn value(&self, ns: [f64; 2]) -> f64 {
        self.sum * self.factor(ns)
    }

    /// t/(t − m′A − d′F) is t/o·1/(1 − x), x = ((m′ − m)A + (d′ − d)F)/o: this with the mean x of what was seen, not of the time, since in a program that
    /// changes the windows in which traps are many are those in which much was seen.
    pub fn factor(&self, ns: [f64; 2]) -> f64 {
        let unseen = self.sum - self.seen;
        if unseen <= 0.0 {
            return 1.0;
        }
        let more = (self.by[0] * ns[0] + self.by[1] * ns[1] - self.with) / unseen;
        (self.seen + unseen / (1.0 - more.min(MOST_OF_TIME))) / self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where 29 ns are usual: 95.7 are enough, and a sample is 10 traps.
    fn usual() -> Usual {
        Usual { median_ns: 29.0, spread: 0.35, power: 1.5, floor_ns: 0.0 }
    }

    #[test]
    fn windows_are_corrected_one_by_one() {
        // A program that is busy in every third window: together they are no more than these two thirds would be without.
        let pace = |at: usize| match at % 3 {
            0 => Pace::exact(335_000.0, 1000.0, None, 0.0, &usual()),
            _ => Pace::exact(300_000.0, 3.0, None, 0.0, &usual()),
        };
        let seen = |at| pace(at).allocations[0];
        let sum = |ns: [f64; 2]| (0..30).map(|at| seen(at) * pace(at).factor(ns)).sum::<f64>();
        let (first, last) = ([35.0, 25.0], [50.0, 0.0]);
        let mut bend = Bend::default();
        for at in 0..30 {
            bend.add(&Bend::of_window(seen(at) * pace(at).factor(first), 0.0, &pace(at), first));
        }
        assert!((bend.factor(first) - 1.0).abs() < 1e-12);
        let later = sum(first) * bend.factor(last);
        assert!((later / sum(last) - 1.0).abs() < 1e-3, "{later} {}", sum(last));
        let mut together = Pace::default();
        (0..30).for_each(|at| together.add(&pace(at)));
        assert!(together.factor(first) < 1.05 && sum(first) / sum([0.0; 2]) > 1.11);
    }

    #[test]
    fn what_was_corrected_at_the_bound_is_corrected_anew() {
        let pace = Pace::exact(100_000.0, 1000.0, Some(1000.0), 0.0, &usual());
        for (first, last) in [([90.0, 60.0], [30.0, 20.0]), ([200.0, 0.0], [40.0, 0.0])] {
            let mut bend = Bend::default();
            bend.add(&Bend::of_window(1000.0 * pace.factor(first), 0.0, &pace, first));
            let (later, right) = (pace.factor(first) * bend.factor(last), pace.factor(last));
            assert!((later / right - 1.0).abs() < 1e-9, "{later} {right}");
        }
    }

    #[test]
    fn phases_that_only_free_lose_no_more_than_others() {
        let pace = Pace::exact(30_000.0, 1.0, Some(1000.0), 0.0, &usual());
        let factor = pace.factor([29.0, FREEING.0 * 29.0]);
        // As many traps as 620, each of 48.4 ns.
        let part = usual().part(30.0 / FREEING.0);
        assert!((factor - 30.0 / (30.0 - part * FREEING.0 * 29.0)).abs() < 0.01, "{factor}");
    }

    #[test]
    fn samples_add_more_than_other_allocations() {
        let factor = |clock_ns: f64, samples| {
            let more = samples * Usual::TRAPS_OF_SAMPLE;
            Pace::exact(clock_ns, 1000.0, None, more, &usual()).factor([29.0, 0.0])
        };
        assert!((factor(150_000.0, 0.0) - 150.0 / 121.0).abs() < 1e-9);
        // 20 samples: 5.8 µs.
        assert!((factor(150_000.0, 20.0) - 150.0 / 115.2).abs() < 1e-9);
        // However many there are in however dense a window, no more than 29 of 95.7 ns, and ever less.
        let most = 95.7 / 66.7;
        let factors = [0.0, 30.0, 1000.0].map(|samples| factor(95_700.0, samples));
        assert!(
            factors.windows(2).all(|of| of[1] < of[0]) && factors[0] < most + 1e-9,
            "{factors:?}"
        );
    }

    #[test]
    fn what_is_seen_all_the_time_is_not_corrected() {
        let (pace, ns) = (Pace::exact(200_000.0, 1000.0, None, 0.0, &usual()), [50.0, 0.0]);
        // 150 of 200 µs are the program's own; in a stratum of as much, of ten times as much, and of very much more.
        assert_eq!(pace.share(1.0, ns), 1.0);
        assert!((pace.share(0.1, ns) - 150.0 / 1950.0).abs() < 1e-9);
        assert!((pace.share(1e-6, ns) / 0.75e-6 - 1.0).abs() < 1e-6);
        // Nor does it matter what is known later.
        assert_eq!(Bend::of_window(7.0, 1.0, &pace, ns).value([10.0, 0.0]), 7.0);
        // z = A·(L − mA)/(t − mA).
        let z = |m: f64| 1000.0 * (2_000_000.0 - 1000.0 * m) / (200_000.0 - 1000.0 * m);
        let bend = Bend::of_window(z(50.0), pace.share(0.1, ns), &pace, ns);
        assert!((bend.value([20.0, 0.0]) / z(20.0) - 1.0).abs() < 1e-9);
    }
}
