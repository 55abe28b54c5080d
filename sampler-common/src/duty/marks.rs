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

/// Groups that a jackknife needs.
pub(super) const LEAST_GROUPS: usize = 4;
/// Degrees of freedom that tell something.
const LEAST_FREEDOM: f64 = 3.0 - 1e-9;
/// Standard error of ln R because traps do not add the same everywhere.
pub(super) const MODEL: f64 = 0.06;

/// As many times the variance between windows is what a marker costs: it makes windows dearer, so that there are a half to a third as many, and is not found
/// in every program.
const PRICE: f64 = 3.0;
/// Relative standard error of what is estimated with a marker: hardly less than that of its model.
const TOLD: f64 = 0.08;
/// Where what traps add leaves that much open, no number of windows makes an interval narrower than a quarter; what windows differ in has to be less by then.
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
        let is_much = of_drag > NEVER && of_drag * of_drag > of_windows;
        !of_windows.is_nan() && (is_much || is_most)
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

    /// Whether there was a marker.
    fn is_one(&self) -> bool {
        self.alone > 0.0 || self.calls > 0.0
    }
}

/// Marks of groups of windows, and what they leave open that more windows would not make less, as a standard error of ln R.
pub(super) type Teller = (Vec<Marks>, f64);

/// What the marks of groups tell of m and d: those of a marker, of tallies, or of all of these together.
pub(super) struct Told<'a> {
    each: Vec<One<'a>>,
    /// How much each counts.
    weights: Vec<f64>,
    /// Standard error of their mean ln R that more windows would not make less: their models are wrong together.
    model: f64,
    /// Degrees of freedom.
    freedom: f64,
    groups: usize,
}

/// What one tells.
struct One<'a> {
    /// Of each group.
    marks: &'a [Marks],
    /// Calls by what was counted outside of windows; and without what lone traps add.
    own: f64,
    alone: f64,
    /// Standard error of ln R, beside chance.
    model: f64,
    /// Degrees of freedom: of calls that come in bursts most are in few groups.
    freedom: f64,
}

impl<'a> One<'a> {
    /// `None` where that is too little.
    fn by(usual: &Usual, (marks, model): &'a Teller) -> Option<One<'a>> {
        // Whichever of both it was called in: else it would be by what they tell that groups are taken.
        let groups = marks.iter().filter(|of| of.is_one()).count();
        let sum = |of: fn(&Marks) -> f64| marks.iter().map(of).sum::<f64>();
        let (own, dense) = (sum(|of| of.alone), sum(|of| of.dense));
        let (ns, spread) = usual.lone_ns();
        let part = ns * dense / own;
        // What of that is uncertain, since it is what lone traps add.
        let error = spread * part / (1.0 - part);
        let freedom = own * own / sum(|of| of.alone * of.alone) - 1.0;
        let is_enough = groups >= LEAST_GROUPS && freedom >= LEAST_FREEDOM && part < 0.5;
        let alone = own / (1.0 - part);
        is_enough.then(|| One { marks, own, alone, model: model.hypot(error), freedom })
    }

    /// ln R where traps add so much, and without each of the groups.
    fn off(&self, ns: [f64; 2]) -> Option<(f64, Vec<f64>)> {
        let inside: Vec<f64> = self.marks.iter().map(|of| of.inside.value(ns)).collect();
        let all: f64 = inside.iter().sum();
        let off = (all / self.alone).ln();
        let without = |(of, inside): (&Marks, &f64)| ((all - inside) / (self.own - of.alone)).ln();
        let left: Vec<f64> = self.marks.iter().zip(&inside).map(without).collect();
        let is_known = off.is_finite() && left.iter().all(|of| of.is_finite());
        is_known.then_some((off, left))
    }
}

impl<'a> Told<'a> {
    /// By all that tell something; `None` where none does.
    pub(super) fn by(usual: &Usual, tellers: &'a [Teller]) -> Option<Told<'a>> {
        let one = |of| {
            let one = One::by(usual, of)?;
            // The weights are the same for all m: as if traps added what is usual.
            let (_, left) = one.off([usual.median_ns, 0.0])?;
            let variance = jackknife(&left) + one.model * one.model;
            Some((one, 1.0 / variance))
        };
        let (each, weights): (Vec<One>, Vec<f64>) = tellers.iter().filter_map(one).unzip();
        let all: f64 = weights.iter().sum();
        let weights: Vec<f64> = weights.iter().map(|of| of / all).collect();
        let mean =
            |of: fn(&One) -> f64| each.iter().zip(&weights).map(|(one, w)| w * of(one)).sum();
        let (model, freedom) = (mean(|of| of.model), mean(|of| of.freedom));
        let is_any = |at: &usize| each.iter().any(|of| of.marks[*at].is_one());
        let groups = each.first().map_or(0, |of| (0..of.marks.len()).filter(is_any).count());
        (!each.is_empty()).then_some(Told { each, weights, model, freedom, groups })
    }

    /// How likely it is where traps add so much; not scaled. Where all calls are in one group all is as likely.
    pub(super) fn likelihood(&self, ns: [f64; 2]) -> f64 {
        let (mut off, mut left) = (0.0, Vec::new());
        for (one, weight) in self.each.iter().zip(&self.weights) {
            let Some((own, without)) = one.off(ns) else { return 1.0 };
            off += weight * own;
            left.resize(without.len(), 0.0);
            left.iter_mut().zip(without).for_each(|(to, of)| *to += weight * of);
        }
        // Groups in which none was called leave all as it is.
        let variance = jackknife_of(&left, self.groups) + self.model * self.model;
        let squared = off * off / variance;
        (1.0 + squared / self.freedom).powf(-(self.freedom + 1.0) / 2.0) / variance.sqrt()
    }
}

/// Variance of what was found with each of the groups left out.
pub(super) fn jackknife(left: &[f64]) -> f64 {
    jackknife_of(left, left.len())
}

/// The same where so many of them are groups that have to do with it.
fn jackknife_of(left: &[f64], n: usize) -> f64 {
    let n = n as f64;
    let mean = left.iter().sum::<f64>() / left.len() as f64;
    left.iter().map(|of| (of - mean).powi(2)).sum::<f64>() * (n - 1.0) / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::Drag;

    fn usual() -> Usual {
        Usual { median_ns: 29.0, spread: 0.45, power: 1.5, floor_ns: 0.0 }
    }

    fn learned(paces: &[Pace], marks: &[Marks]) -> Drag {
        Drag::learned(&usual(), paces, &[(marks.to_vec(), MODEL)])
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
            let (before, after) = (learned(&paces, &[]), learned(&paces, &marks));
            let (error, without) = (after.errors()[0], before.errors()[0]);
            assert!((after.ns[0] - m).abs() < 2.0 * error, "{m}: {:?} ± {error}", after.ns);
            assert!(m < 20.0 || error / after.ns[0] < 0.8 * without / before.ns[0], "{m}");
        }
    }

    #[test]
    fn what_two_tell_counts_together() {
        let (paces, marks) = groups(60.0, 1.0, 16);
        let error = |tellers: &[Teller]| Drag::learned(&usual(), &paces, tellers).errors()[0];
        let (good, poor) = ((marks.clone(), MODEL), (marks, 5.0 * MODEL));
        let [one, both, alone] =
            [vec![good.clone()], vec![good, poor.clone()], vec![poor]].map(|of| error(&of));
        // The poor one adds nothing, and takes nothing away.
        assert!((both / one - 1.0).abs() < 0.1 && alone > 1.15 * one, "{one} {both} {alone}");
    }

    #[test]
    fn a_marker_is_worth_it_where_windows_are_alike() {
        assert!(Marked::is_worth(0.12, 0.05 * 0.05) && !Marked::is_worth(0.12, 0.06 * 0.06));
        // And where nothing else will ever tell.
        assert!(Marked::is_worth(0.2, 0.03) && !Marked::is_worth(0.2, 0.05));
        assert!(!Marked::is_worth(0.1, 0.1));
        // However many windows there were: it would not be known better.
        assert!(!Marked::is_worth(0.08, 0.0) && !Marked::is_worth(f64::INFINITY, f64::NAN));
    }

    #[test]
    fn what_is_no_marker_says_nothing() {
        let (paces, marks) = groups(30.0, 1.0, 16);
        let before = learned(&paces, &[]);
        assert_eq!(learned(&paces, &marks[..3]), before, "too few groups");
        let none = [Marks::default(); 16];
        assert_eq!(learned(&paces, &none), before, "never called");
        // Called in one window, or before windows only.
        let (mut once, mut outside) = (marks.clone(), marks.clone());
        once[1..].iter_mut().for_each(|of| of.inside = Bend::default());
        outside.iter_mut().for_each(|of| of.inside = Bend::default());
        for marks in [once, outside] {
            let drag = learned(&paces, &marks);
            assert!((drag.ns[0] - before.ns[0]).abs() < 1e-9, "{:?} {:?}", drag.ns, before.ns);
        }
    }

    #[test]
    fn the_traps_of_the_marker_itself_are_taken_off() {
        // Called each 20 µs, a trap of the marker adds 7·29 = 203 ns: the clock shows 1 % more for each.
        let (_, marks) = groups(30.0, 20_000.0 / 20_203.0, 16);
        let usual = usual();
        let teller = (marks, 0.0);
        let told = One::by(&usual, &teller).unwrap();
        let (_, right) = groups(30.0, 1.0, 16);
        let all: f64 = right.iter().map(|of| of.alone).sum();
        assert!((told.alone / all - 1.0).abs() < 1e-4, "{} {all}", told.alone);
        assert!((told.model - 0.6 * 0.01).abs() < 1e-3, "{}", told.model);
    }
}
