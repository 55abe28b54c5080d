//! How much traps slow a program's own code, learned in the program itself.
//!
//! A trap pushes the program's state out of caches, predictors and store buffers, so that its own code runs slower behind it; the clock ticks in that
//! code, and counts progress that is none. How much depends on the code: some 5 ns a trap for one, a hundred for a loop that lives from
//! forwarded stores. Measured elsewhere it would be of no use.
//!
//! # Derivation
//!
//! Windows are of two kinds, by chance: in the one the functions that allocate are probed, in the other those that free as well. With g the program's own time
//! for each allocation, δ what a trap adds to it, and f frees for each allocation, the clock shows for each allocation
//!
//! ```text
//! r₁ = g + δ          r₂ = g + δ·(1 + f)          δ = (r₂ − r₁)/f
//! ```
//!
//! as ratios of sums over windows of either kind. Where a window has h hits in t nanoseconds of its clock, t/(t − δh) times as much was allocated in the same
//! progress unprobed. The error of δ is that of the delete-one jackknife over groups (M. H. Quenouille, Biometrika 43, 1956). Before there are windows
//! enough it is what is usual, 20 ± 30 ns; from then on both are averaged, each by the inverse of its variance, so that where hits are rare and the windows say
//! little nothing is lost. That a trap in `free` costs what one in malloc does is an assumption; a quarter of the correction is added to its
//! standard error for that.

/// What is usual, with its standard error, nanoseconds: measured were 5 (a loop of nothing but malloc and free) to 90 (sums in memory).
const USUAL: Drag = Drag { ns: 20.0, error: 30.0 };
/// Groups that a jackknife needs.
const LEAST_GROUPS: usize = 4;
/// Hits may be corrected for up to this part of a window's time.
const MOST_OF_TIME: f64 = 0.9;
/// What is not known of the model, of the correction.
const MODEL: f64 = 0.25;

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

/// δ with its standard error, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drag {
    /// What a trap adds to the program's own time.
    pub ns: f64,
    /// Its standard error.
    pub error: f64,
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

    /// δ by the equations; `None` where they say nothing.
    fn solved(&self) -> Option<f64> {
        let rate = |kind: usize| self.clock_ns[kind] / self.allocations[kind];
        let frees = self.frees / self.allocations[1];
        let drag = (rate(1) - rate(0)) / frees;
        (drag.is_finite() && frees > 0.1).then_some(drag)
    }

    /// By what what was counted is to be multiplied.
    pub fn factor(&self, drag_ns: f64) -> f64 {
        let clock: f64 = self.clock_ns.iter().sum();
        let hits = self.allocations.iter().sum::<f64>() + self.frees;
        if clock <= 0.0 {
            return 1.0;
        }
        1.0 / (1.0 - (drag_ns * hits / clock).clamp(0.0, MOST_OF_TIME))
    }
}

impl Drag {
    /// Of a program, by groups of its windows.
    pub fn learned(groups: &[Pace]) -> Drag {
        let mut all = Pace::default();
        groups.iter().for_each(|group| all.add(group));
        let left: Vec<f64> =
            groups.iter().filter_map(|group| all.without(group).solved()).collect();
        let Some(ns) = all.solved().filter(|_| left.len() >= LEAST_GROUPS) else { return USUAL };
        let n = left.len() as f64;
        let mean = left.iter().sum::<f64>() / n;
        let squares: f64 = left.iter().map(|of| (of - mean).powi(2)).sum();
        let of_groups = 1.0 / (squares * (n - 1.0) / n).max(1e-6);
        let of_usual = 1.0 / (USUAL.error * USUAL.error);
        let all = of_groups + of_usual;
        let ns = (ns * of_groups + USUAL.ns * of_usual) / all;
        Drag { ns: ns.max(0.0), error: all.sqrt().recip() }
    }

    /// Relative standard error of sums that were corrected: `total` is the sum as a function of δ.
    pub fn error_of(&self, total: impl Fn(f64) -> f64) -> f64 {
        let value = total(self.ns);
        if value <= 0.0 {
            return 0.0;
        }
        let (more, less) = (total(self.ns + self.error), total((self.ns - self.error).max(0.0)));
        let of_error = (more - less) / 2.0 / value;
        let of_model = MODEL * (1.0 - total(0.0) / value);
        of_error.hypot(of_model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of a program of `g` ns per allocation, in which a trap adds `drag`, with noise of the clock.
    fn groups(g: f64, drag: f64, n: usize) -> Vec<Pace> {
        let noise = |at: usize| 1.0 + 0.1 * (((at * 7919) % 17) as f64 / 8.0 - 1.0);
        let window = |at: usize| {
            let with_free = at % 2 == 1;
            let each = g + drag * if with_free { 2.0 } else { 1.0 };
            let clock = 1000.0 * each * noise(at);
            Pace::of_window(clock, 1000.0, with_free.then_some(1000.0))
        };
        (0..n).map(window).collect()
    }

    #[test]
    fn what_a_trap_adds_is_learned() {
        let groups = groups(50.0, 90.0, 32);
        let drag = Drag::learned(&groups);
        assert!((drag.ns - 90.0).abs() < 3.0 * drag.error, "{drag:?}");
        assert!(drag.error < 20.0, "{drag:?}");
        // 1000 allocations in each window of 140,000 or 230,000 ns were 1000 in 50,000.
        let total = |of: f64| {
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
    fn rare_traps_need_no_learning() {
        let groups: Vec<Pace> = (0..9).map(|_| Pace::of_window(1e6, 100.0, None)).collect();
        let drag = Drag::learned(&groups);
        let total = |of: f64| groups.iter().map(|group| group.factor(of)).sum::<f64>();
        assert!((total(drag.ns) / 9.0 - 1.002).abs() < 1e-4);
        assert!(drag.error_of(total) < 0.004);
    }

    #[test]
    fn one_kind_of_windows_says_nothing() {
        let groups: Vec<Pace> = (0..9).map(|_| Pace::of_window(1e6, 10_000.0, None)).collect();
        assert_eq!(Drag::learned(&groups), USUAL);
        assert_eq!(Drag::learned(&[]), USUAL);
    }
}
