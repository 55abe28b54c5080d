//! How much traps slow a program's own code, learned in the program itself.
//!
//! A trap pushes the program's state out of caches, predictors and store buffers, so that its own code runs slower behind it; the clock ticks in that
//! code, and counts progress that is none. How much depends on the code: some 5 ns a trap for one, a hundred for a loop that lives from
//! forwarded stores. Measured elsewhere it would be of no use.
//!
//! # Derivation
//!
//! Windows are of two kinds, by chance: in the one the functions that allocate are probed, in the other those that free as well. With g the program's own time
//! for each allocation, m and d what a trap in a function that allocates and in one that frees adds to it, and f frees for each allocation, the clock shows
//! for each allocation
//!
//! ```text
//! r₁ = g + m          r₂ = g + m + f·d          d = (r₂ − r₁)/f
//! ```
//!
//! as ratios of sums over windows of either kind. Where a window has A allocations and F frees in t nanoseconds of its clock, t/(t − mA − dF) times as much was
//! allocated in the same progress unprobed: window by window, with what is known by then, and later by what that was off ([`Bend`]). So d is learned in the target, with the error of a delete-one jackknife over groups (M. H. Quenouille,
//! Biometrika 43, 1956); m is not, but it has to do with d. Both have a normal law before anything is known, which says what is usual, and the one that is left of it
//! after d was seen (conditioned on; C. R. Rao, "Linear Statistical Inference and Its Applications", 8a.2):
//!
//! ```text
//! m ~ N(35, 20²)·s          d − m ~ N(−10, 15²)·s          s = min(1, r₁/105 ns)
//! ```
//!
//! These are what sqlite3, perl, jq, python3 and loops of malloc and free were found to have (their rounds counted, their CPU time alone beside what the clock showed):
//! m from 5 to 50, d from 5 to 37, less than m where little is between the two traps, since the second finds the caches empty already. A loop
//! that does little between traps has little to lose: hence s. Code that lives from forwarded stores has 90, which its d tells.

/// What a trap in a function that allocates adds, usually, with its standard deviation, nanoseconds.
const USUAL: (f64, f64) = (35.0, 20.0);
/// What one in a function that frees adds more than that.
const MORE: (f64, f64) = (-10.0, 15.0);
/// Time for each allocation from which on these hold; below, as much less.
const ENOUGH_NS: f64 = 105.0;
/// Groups that a jackknife needs.
const LEAST_GROUPS: usize = 4;
/// Hits may be corrected for up to this part of a window's time.
const MOST_OF_TIME: f64 = 0.9;

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Windows in which only functions that allocate were probed, and in which those that free were too.
    pub windows: [u32; 2],
    /// Nanoseconds of the clock.
    pub clock_ns: [f64; 2],
    /// Allocations.
    pub allocations: [f64; 2],
    /// Calls of functions that free, where they were probed.
    pub frees: f64,
}

/// What windows that were corrected one by one are to be multiplied by where m and d turn out to be others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bend {
    /// What was seen, corrected: Σz.
    sum: f64,
    /// Σz·A/o and Σz·F/o, o = t − mA − dF being the program's own time in a window.
    by: [f64; 2],
    /// Σz·(mA + dF)/o, of the m and d that each was corrected with.
    with: f64,
}

/// What a trap adds to the program's own time, nanoseconds: in functions that allocate, and in those that free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drag {
    /// m and d.
    pub ns: [f64; 2],
    /// Their variances, and their covariance.
    variance: [f64; 2],
    covariance: f64,
}

impl Pace {
    /// Of a window.
    pub fn of_window(clock_ns: f64, allocations: f64, frees: Option<f64>) -> Pace {
        let kind = usize::from(frees.is_some());
        let mut pace = Pace { frees: frees.unwrap_or(0.0), ..Pace::default() };
        pace.windows[kind] = 1;
        pace.clock_ns[kind] = clock_ns;
        pace.allocations[kind] = allocations;
        pace
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Pace) {
        for kind in 0..2 {
            self.windows[kind] += other.windows[kind];
            self.clock_ns[kind] += other.clock_ns[kind];
            self.allocations[kind] += other.allocations[kind];
        }
        self.frees += other.frees;
    }

    fn without(&self, other: &Pace) -> Pace {
        let mut less = *self;
        for kind in 0..2 {
            less.clock_ns[kind] -= other.clock_ns[kind];
            less.allocations[kind] -= other.allocations[kind];
        }
        less.frees -= other.frees;
        less
    }

    /// Time of the clock for each allocation, where only functions that allocate were probed.
    fn each(&self) -> f64 {
        let rate = |kind: usize| self.clock_ns[kind] / self.allocations[kind];
        let each = if self.allocations[0] > 0.0 { rate(0) } else { rate(1) };
        if each.is_finite() { each } else { f64::INFINITY }
    }

    /// d by the equations; `None` where they say nothing.
    fn solved(&self) -> Option<f64> {
        let rate = |kind: usize| self.clock_ns[kind] / self.allocations[kind];
        let frees = self.frees / self.allocations[1];
        let drag = (rate(1) - rate(0)) / frees;
        (drag.is_finite() && frees > 0.1).then_some(drag)
    }

    /// By what what was counted is to be multiplied, where traps add so much.
    pub fn factor(&self, [allocating, freeing]: [f64; 2]) -> f64 {
        let clock: f64 = self.clock_ns.iter().sum();
        let added = allocating * self.allocations.iter().sum::<f64>() + freeing * self.frees;
        if clock <= 0.0 {
            return 1.0;
        }
        1.0 / (1.0 - (added / clock).clamp(0.0, MOST_OF_TIME))
    }
}

impl Bend {
    /// Of a window in which `sum` was seen, corrected for that much.
    pub fn of_window(sum: f64, pace: &Pace, ns: [f64; 2]) -> Bend {
        let clock: f64 = pace.clock_ns.iter().sum();
        let own = clock / pace.factor(ns);
        let each = |hits: f64| if own > 0.0 { sum * hits / own } else { 0.0 };
        let by = [each(pace.allocations.iter().sum()), each(pace.frees)];
        Bend { sum, by, with: by[0] * ns[0] + by[1] * ns[1] }
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Bend) {
        self.sum += other.sum;
        self.by.iter_mut().zip(other.by).for_each(|(to, from)| *to += from);
        self.with += other.with;
    }

    /// t/(t − m′A − d′F) is t/o·1/(1 − x), x = ((m′ − m)A + (d′ − d)F)/o: this with the mean x of what was seen, not of the time, since in a program that
    /// changes the windows in which traps are many are those in which much was seen.
    pub fn factor(&self, ns: [f64; 2]) -> f64 {
        if self.sum <= 0.0 {
            return 1.0;
        }
        let more = (self.by[0] * ns[0] + self.by[1] * ns[1] - self.with) / self.sum;
        1.0 / (1.0 - more.min(MOST_OF_TIME))
    }
}

impl Drag {
    /// What is usual in a program of so many nanoseconds for each allocation.
    fn usual(each_ns: f64) -> Drag {
        let s = (each_ns / ENOUGH_NS).min(1.0);
        let of_usual = (USUAL.1 * s).powi(2);
        Drag {
            ns: [USUAL.0 * s, (USUAL.0 + MORE.0) * s],
            variance: [of_usual, of_usual + (MORE.1 * s).powi(2)],
            covariance: of_usual,
        }
    }

    /// Of a program, by groups of its windows.
    pub fn learned(groups: &[Pace]) -> Drag {
        let mut all = Pace::default();
        groups.iter().for_each(|group| all.add(group));
        let usual = Drag::usual(all.each());
        let left: Vec<f64> =
            groups.iter().filter_map(|group| all.without(group).solved()).collect();
        let seen = all.solved().filter(|_| left.len() >= LEAST_GROUPS);
        seen.map_or(usual, |ns| usual.given(ns, jackknife(&left)))
    }

    /// What is left of it after d was seen to be so much, with that variance.
    fn given(self, freeing_ns: f64, variance: f64) -> Drag {
        let of_seen = self.variance[1] + variance;
        let off = freeing_ns - self.ns[1];
        let weight = [self.covariance / of_seen, self.variance[1] / of_seen];
        let ns = [0, 1].map(|of| (self.ns[of] + weight[of] * off).max(0.0));
        Drag {
            ns,
            variance: [
                self.variance[0] - weight[0] * self.covariance,
                self.variance[1] - weight[1] * self.variance[1],
            ],
            covariance: self.covariance - weight[0] * self.variance[1],
        }
    }

    /// Standard errors of both.
    pub fn errors(&self) -> [f64; 2] {
        self.variance.map(|of| of.max(0.0).sqrt())
    }

    /// Relative standard error of sums that were corrected: `total` is the sum as a function of m and d.
    pub fn error_of(&self, total: impl Fn([f64; 2]) -> f64) -> f64 {
        let value = total(self.ns);
        if value <= 0.0 {
            return 0.0;
        }
        let errors = self.errors();
        // What one of them does to the sum, for each nanosecond: over its error to both sides.
        let slope = |of: usize| {
            let at = |off: f64| {
                let mut ns = self.ns;
                ns[of] = (ns[of] + off).max(0.0);
                (total(ns), ns[of])
            };
            let ((more, high), (less, low)) = (at(errors[of]), at(-errors[of]));
            if high > low { (more - less) / (high - low) / value } else { 0.0 }
        };
        let slopes = [slope(0), slope(1)];
        let own = (slopes[0] * errors[0]).powi(2) + (slopes[1] * errors[1]).powi(2);
        (own + 2.0 * slopes[0] * slopes[1] * self.covariance).max(0.0).sqrt()
    }
}

/// Variance of what was found with each of the groups left out.
fn jackknife(left: &[f64]) -> f64 {
    let n = left.len() as f64;
    let mean = left.iter().sum::<f64>() / n;
    left.iter().map(|of| (of - mean).powi(2)).sum::<f64>() * (n - 1.0) / n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of a program of `g` ns per allocation, in which traps add m and d, with noise of the clock.
    fn groups(g: f64, [m, d]: [f64; 2], n: usize) -> Vec<Pace> {
        let noise = |at: usize| 1.0 + 0.1 * (((at * 7919) % 17) as f64 / 8.0 - 1.0);
        let window = |at: usize| {
            let with_free = at % 2 == 1;
            let each = g + m + if with_free { d } else { 0.0 };
            let clock = 1000.0 * each * noise(at);
            Pace::of_window(clock, 1000.0, with_free.then_some(1000.0))
        };
        (0..n).map(window).collect()
    }

    #[test]
    fn what_a_trap_adds_is_learned() {
        let groups = groups(50.0, [90.0; 2], 32);
        let drag = Drag::learned(&groups);
        let errors = drag.errors();
        for of in [0, 1] {
            assert!((drag.ns[of] - 90.0).abs() < 3.0 * errors[of], "{drag:?}");
            assert!(errors[of] < 20.0, "{drag:?}");
        }
        // 1000 allocations in each window of 140,000 or 230,000 ns were 1000 in 50,000.
        let total = |of: [f64; 2]| {
            groups
                .iter()
                .map(|group| group.factor(of) / group.clock_ns.iter().sum::<f64>())
                .sum::<f64>()
        };
        let truth = 32.0 / 50_000.0;
        let (value, error) = (total(drag.ns), drag.error_of(total));
        assert!((value / truth - 1.0).abs() < 2.5 * error, "{value} {truth} {error}");
        assert!((0.05..1.0).contains(&error), "{error}");
    }

    #[test]
    fn a_second_trap_may_cost_less_than_the_first() {
        // As python3's: 45 ns in malloc, 27 in the free behind it; found were the half of what m is, held to be all, and sums a fifth too low.
        let groups = groups(110.0, [45.0, 27.0], 32);
        let drag = Drag::learned(&groups);
        let total = |of| groups.iter().map(|group| group.factor(of)).sum::<f64>();
        let (value, error) = (total(drag.ns), drag.error_of(total));
        let truth = total([45.0, 27.0]);
        assert!((value / truth - 1.0).abs() < 1.5 * error, "{value} {truth} {error}");
        assert!((0.05..0.16).contains(&error), "{error}");
    }

    #[test]
    fn a_loop_of_nothing_but_traps_has_little_to_lose() {
        let groups: Vec<Pace> = (0..32).map(|_| Pace::of_window(30_000.0, 1000.0, None)).collect();
        let drag = Drag::learned(&groups);
        assert!((drag.ns[0] - 10.0).abs() < 1e-9 && drag.ns[0] < 0.4 * 30.0, "{drag:?}");
        let total = |of| groups.iter().map(|group| group.factor(of)).sum::<f64>();
        assert!(drag.error_of(total) > 0.3);
    }

    #[test]
    fn windows_are_corrected_one_by_one() {
        // A program that is busy in every third window: together they are no more than these two thirds would be without.
        let pace = |at: usize| match at % 3 {
            0 => Pace::of_window(335_000.0, 1000.0, None),
            _ => Pace::of_window(300_000.0, 3.0, None),
        };
        let seen = |at| pace(at).allocations[0];
        let sum = |ns: [f64; 2]| (0..30).map(|at| seen(at) * pace(at).factor(ns)).sum::<f64>();
        let (first, last) = ([35.0, 25.0], [50.0, 0.0]);
        let mut bend = Bend::default();
        for at in 0..30 {
            bend.add(&Bend::of_window(seen(at) * pace(at).factor(first), &pace(at), first));
        }
        assert!((bend.factor(first) - 1.0).abs() < 1e-12);
        let later = sum(first) * bend.factor(last);
        assert!((later / sum(last) - 1.0).abs() < 1e-3, "{later} {}", sum(last));
        let mut together = Pace::default();
        (0..30).for_each(|at| together.add(&pace(at)));
        assert!(together.factor(first) < 1.05 && sum(first) / sum([0.0; 2]) > 1.11);
    }

    #[test]
    fn rare_traps_need_no_learning() {
        let groups: Vec<Pace> = (0..9).map(|_| Pace::of_window(1e6, 100.0, None)).collect();
        let drag = Drag::learned(&groups);
        let total = |of| groups.iter().map(|group| group.factor(of)).sum::<f64>();
        assert!((total(drag.ns) / 9.0 - 1.0035).abs() < 1e-4);
        assert!(drag.error_of(total) < 0.004);
    }

    #[test]
    fn one_kind_of_windows_says_nothing() {
        let groups: Vec<Pace> = (0..9).map(|_| Pace::of_window(1e6, 1_000.0, None)).collect();
        assert_eq!(Drag::learned(&groups), Drag::usual(f64::INFINITY));
        assert_eq!(Drag::learned(&[]), Drag::usual(f64::INFINITY));
        assert_eq!(Drag::usual(1e3).ns, [35.0, 25.0]);
    }

    #[test]
    fn what_was_seen_exactly_is_taken() {
        let drag = Drag::usual(1e3).given(60.0, 0.0);
        assert!((drag.ns[1] - 60.0).abs() < 1e-9 && drag.errors()[1] < 1e-6, "{drag:?}");
        // m of d: 35 + 400/625·35.
        assert!((drag.ns[0] - 57.4).abs() < 1e-3, "{drag:?}");
        assert!((drag.errors()[0] - 12.0).abs() < 1e-3, "{drag:?}");
    }
}
