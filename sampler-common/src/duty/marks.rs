//! What a marker tells: a function of the target that is called far less often than those that allocate, so that its calls can be counted without
//! slowing the program down.
//!
//! # Derivation
//!
//! Before a window the marker is probed alone, for t₁ of the clock; it is called N times. In the window, of t with A allocations and F frees, it is
//! called i times. Let κ be the window's share of its stratum and λ the stratum's length by the clock. How often the marker is called in all strata is estimated
//! by both,
//!
//! ```text
//! Σ (i/κ)·t/(t − mA − dF)          Σ λ·N/(t₁ − aN)
//! ```
//!
//! the first of which depends on what traps are taken to add, the second hardly: a is what a trap adds that has no others near it
//! ([`super::Usual::lone_ns`]), and these are rare. The ratio R of the two is 1 where m and d are right. The variance of ln R is that of a delete-one jackknife over groups
//! of windows (a ratio of sums: M. H. Quenouille, Biometrika 43, 1956), and of what the code near the marker differs from the rest in; all m are as likely as they were times the
//! likelihood of ln R, by Student's law. Window and marker are next to each other, so that it matters little what the program was doing.

use super::{Bend, Pace, Usual};

/// Groups that tell something.
const LEAST_GROUPS: usize = 4;
/// Degrees of freedom that tell something.
const LEAST_FREEDOM: f64 = 3.0 - 1e-9;
/// Standard error of ln R because traps do not add the same everywhere.
pub(super) const MODEL: f64 = 0.06;

/// As many times the variance between windows is what a marker costs: it makes windows dearer, so that there are a half to a third as many, and is not found
/// in every program.
const PRICE: f64 = 3.0;
/// Relative standard error of what is estimated with a marker: hardly less than that of its model.
const TOLD: f64 = 0.08;
/// Where what traps add leaves that much open, no number of windows makes an interval narrower than a quarter.
const NEVER: f64 = 0.125;

/// Calls of a marker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marked {
    /// In the window: i.
    pub inside: f64,
    /// Those of them that no other probe has seen, so that each had a trap of its own.
    pub own: f64,
    /// Before it: N.
    pub alone: f64,
    /// How long that was by the clock, nanoseconds: t₁.
    pub alone_ns: f64,
}

impl Marked {
    /// Whether a marker is worth its cost: estimates have this relative standard error because of what traps add, and this relative variance because of
    /// what windows differ in.
    pub fn is_worth(of_drag: f64, of_windows: f64) -> bool {
        let is_most = of_drag * of_drag - TOLD * TOLD > PRICE * of_windows;
        !of_windows.is_nan() && (of_drag > NEVER || is_most)
    }
}

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Calls counted in windows.
    calls: f64,
    /// i/κ, as traps are found to slow the program.
    inside: Bend,
    /// Σy, y = λN/t₁.
    alone: f64,
    /// Σy·N/t₁: of these is what the marker's own traps add.
    dense: f64,
}

impl Marks {
    /// Of a window that has this [share](Pace::share) of its stratum, corrected for traps of so many nanoseconds.
    pub(super) fn of_window(marked: &Marked, share: f64, pace: &Pace, ns: [f64; 2]) -> Marks {
        let stratum_ns = pace.clock_ns.iter().sum::<f64>() / pace.factor(ns) / share;
        let rate = marked.alone / marked.alone_ns.max(1.0);
        Marks {
            calls: marked.inside,
            inside: Bend::of_window(marked.inside / share, share, pace, ns),
            alone: stratum_ns * rate,
            dense: stratum_ns * rate * rate,
        }
    }

    /// Of what the kernel counts all the time, without a trap: as many in windows, and in all of their strata.
    pub(super) fn untrapped(calls: f64, inside: Bend, alone: f64) -> Marks {
        Marks { calls, inside, alone, dense: 0.0 }
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Marks) {
        self.calls += other.calls;
        self.inside.add(&other.inside);
        self.alone += other.alone;
        self.dense += other.dense;
    }

    /// Calls counted in windows.
    pub fn calls(&self) -> f64 {
        self.calls
    }
}

/// What the marks of groups tell of m and d.
pub(super) struct Told<'a> {
    groups: Vec<&'a Marks>,
    /// Calls by what was counted outside of windows.
    alone: f64,
    /// What of that is uncertain, since it is what lone traps add.
    error: f64,
    /// Standard error of ln R that more windows would not make less.
    model: f64,
    /// Degrees of freedom: of calls that come in bursts most are in few groups.
    freedom: f64,
}

impl<'a> Told<'a> {
    /// Of groups in which there was a marker; `None` where that is too little.
    pub(super) fn by(
        usual: &Usual,
        groups: impl Iterator<Item = &'a Marks>,
        model: f64,
    ) -> Option<Told<'a>> {
        // Whichever of both it was called in: else it would be by what they tell that groups are taken.
        let is_one = |of: &&Marks| of.alone > 0.0 || of.calls > 0.0;
        let groups: Vec<&Marks> = groups.filter(is_one).collect();
        let sum = |of: fn(&Marks) -> f64| groups.iter().map(|group| of(group)).sum::<f64>();
        let (alone, dense) = (sum(|of| of.alone), sum(|of| of.dense));
        let (ns, spread) = usual.lone_ns();
        let part = ns * dense / alone;
        let error = spread * part / (1.0 - part);
        let squares: f64 = groups.iter().map(|of| of.alone * of.alone).sum();
        let freedom = alone * alone / squares - 1.0;
        let is_enough = groups.len() >= LEAST_GROUPS && freedom >= LEAST_FREEDOM && part < 0.5;
        let alone = alone / (1.0 - part);
        is_enough.then_some(Told { groups, alone, error, model, freedom })
    }

    /// How likely it is where traps add so much; not scaled. Where all calls are in one group all is as likely.
    pub(super) fn likelihood(&self, ns: [f64; 2]) -> f64 {
        let inside: Vec<f64> = self.groups.iter().map(|of| of.inside.value(ns)).collect();
        let own: f64 = self.groups.iter().map(|of| of.alone).sum();
        let all: f64 = inside.iter().sum();
        let off = (all / self.alone).ln();
        let left: Vec<f64> = self
            .groups
            .iter()
            .zip(&inside)
            .map(|(of, inside)| ((all - inside) / (own - of.alone)).ln())
            .collect();
        if !off.is_finite() || left.iter().any(|of| !of.is_finite()) {
            return 1.0;
        }
        let variance = jackknife(&left) + self.model * self.model + self.error * self.error;
        let freedom = self.freedom;
        let squared = off * off / variance;
        (1.0 + squared / freedom).powf(-(freedom + 1.0) / 2.0) / variance.sqrt()
    }
}

/// Variance of what was found with each of the groups left out.
pub(super) fn jackknife(left: &[f64]) -> f64 {
    let n = left.len() as f64;
    let mean = left.iter().sum::<f64>() / n;
    left.iter().map(|of| (of - mean).powi(2)).sum::<f64>() * (n - 1.0) / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::Drag;

    fn usual() -> Usual {
        Usual { median_ns: 29.0, spread: 0.45, power: 1.5, floor_ns: 0.0 }
    }

    /// Groups of a program of 200 ns for each allocation and a call of the marker each 100, in which traps add m; windows are 1 % of it.
    fn groups(m: f64, alone: f64, n: usize) -> (Vec<Pace>, Vec<Marks>) {
        let noise = |at: usize| 1.0 + 0.1 * (((at * 7919) % 17) as f64 / 8.0 - 1.0);
        let window = |at: usize| {
            let allocations = 20_000.0;
            let clock_ns = allocations * (200.0 + m) * noise(at);
            let pace = Pace::exact(clock_ns, allocations, None, 0.0, &usual());
            let marked = Marked {
                inside: 200.0,
                own: 0.0,
                alone: 600.0 * alone,
                alone_ns: 600.0 * 20_000.0,
            };
            (pace, Marks::of_window(&marked, 0.01, &pace, [0.0; 2]))
        };
        (0..n).map(window).unzip()
    }

    #[test]
    fn what_traps_add_is_told() {
        for m in [10.0, 30.0, 90.0, 150.0] {
            let (paces, marks) = groups(m, 1.0, 16);
            let (before, after) = (
                Drag::learned(&usual(), &paces, (&[], MODEL)),
                Drag::learned(&usual(), &paces, (&marks, MODEL)),
            );
            let (error, without) = (after.errors()[0], before.errors()[0]);
            assert!((after.ns[0] - m).abs() < 2.0 * error, "{m}: {:?} ± {error}", after.ns);
            assert!(m < 20.0 || error / after.ns[0] < 0.8 * without / before.ns[0], "{m}");
        }
    }

    #[test]
    fn a_marker_is_worth_it_where_windows_are_alike() {
        assert!(Marked::is_worth(0.12, 0.05 * 0.05) && !Marked::is_worth(0.12, 0.06 * 0.06));
        // And where nothing else will ever tell.
        assert!(Marked::is_worth(0.2, 0.1) && !Marked::is_worth(0.1, 0.1));
        // However many windows there were: it would not be known better.
        assert!(!Marked::is_worth(0.08, 0.0) && !Marked::is_worth(f64::INFINITY, f64::NAN));
    }

    #[test]
    fn what_is_no_marker_says_nothing() {
        let (paces, marks) = groups(30.0, 1.0, 16);
        let before = Drag::learned(&usual(), &paces, (&[], MODEL));
        assert_eq!(Drag::learned(&usual(), &paces, (&marks[..3], MODEL)), before, "too few groups");
        let none = [Marks::default(); 16];
        assert_eq!(Drag::learned(&usual(), &paces, (&none, MODEL)), before, "never called");
        // Called in one window, or before windows only.
        let (mut once, mut outside) = (marks.clone(), marks.clone());
        once[1..].iter_mut().for_each(|of| of.inside = Bend::default());
        outside.iter_mut().for_each(|of| of.inside = Bend::default());
        for marks in [once, outside] {
            let drag = Drag::learned(&usual(), &paces, (&marks, MODEL));
            assert!((drag.ns[0] - before.ns[0]).abs() < 1e-9, "{:?} {:?}", drag.ns, before.ns);
        }
    }

    #[test]
    fn the_traps_of_the_marker_itself_are_taken_off() {
        // Called each 20 µs, a trap of the marker adds 7·29 = 203 ns: the clock shows 1 % more for each.
        let (_, marks) = groups(30.0, 20_000.0 / 20_203.0, 16);
        let usual = usual();
        let told = Told::by(&usual, marks.iter(), MODEL).unwrap();
        let (_, right) = groups(30.0, 1.0, 16);
        let all: f64 = right.iter().map(|of| of.alone).sum();
        assert!((told.alone / all - 1.0).abs() < 1e-4, "{} {all}", told.alone);
        assert!((told.error - 0.6 * 0.01).abs() < 1e-3, "{}", told.error);
    }
}
