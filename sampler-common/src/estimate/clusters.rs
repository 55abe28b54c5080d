//! What windows differ in: intervals of rows that were seen for a part of the time only ([`crate::duty`]).
//!
//! # Derivation
//!
//! A row has z_g in the g-th group of windows (its samples' weights, each divided by the share of its window), and the group stands for
//! Λ_g ticks. With T = Σz_g, Λ = ΣΛ_g and r_g = z_g − T·Λ_g/Λ, each z_g is an estimate of T·Λ_g/Λ where the row does not change, and of more or less where it does:
//!
//! ```text
//! var(T) ≤ n/(n−1) · Σ r_g²
//! ```
//!
//! in expectation, with equality where the strata are alike; what samples differ in within windows is part of it (Cochran, "Sampling Techniques",
//! chapters 5A.12 and 10.4). The interval is Student's with n − 1 degrees of freedom. A program of two long phases would have what these differ in in its interval, though every window was
//! placed in its own phase. But groups are in the order of time, and what changes slowly is nearly the same in neighbours:
//!
//! ```text
//! var(T) ≤ ½ · Σ (r_g − r_{g−1})²          r_0 = r_n
//! ```
//!
//! since with independent z_g of means μ_g the expectation is Σ var(z_g) + ½·Σ (μ_g − μ_{g−1})². (The circle counts each group twice, also the first and the last, of which one may have most of a row.)
//! This quadratic form has the eigenvalues 1 − cos(2πk/n), so that (Σ)²/Σ² makes 2n/3 degrees of freedom. It takes the other's place where neighbours are as much alike as by chance in one of a hundred programs that
//! do not change: in any order of the groups their proportion has the mean 1, and a variance of 1/n (J. von Neumann and others, "The mean square successive difference", Annals of Mathematical
//! Statistics 12, 1941). Always, it would widen intervals of programs with a period of which strata are a half, and be less well known where groups are few.
//!
//! Of several processes the variances add, with the degrees of freedom of F. E. Satterthwaite (Biometrics Bulletin 2, 1946); processes of few windows are judged together, by the first
//! formula ([`super::pools`]). Few samples in few groups say little of their own variance; so the interval is never narrower than that of the samples alone ([`mod@super::weighted`]).
//!
//! What traps have slowed the program's own code by is corrected before ([`crate::duty::Drag`]); the error of that is the same for all rows of a process, and
//! mostly the same for all processes of a machine: these errors add up, and the square of their sum is added to the variance.

use super::quantity::Quantity;
use super::{Confidence, Estimate, Method, Reference, Row};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// A standard normal variable is so much below its mean once in a hundred times.
const ALIKE: f64 = 2.33;

/// A group of windows of a process, taken to all of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Ticks that it stands for.
    pub length: f64,
    /// Bytes and objects allocated, estimated by exact totals of its windows.
    pub total: [f64; 2],
}

/// The windows of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clusters {
    /// Groups of them.
    pub groups: Vec<Cluster>,
    /// How many there were.
    pub windows: u32,
    /// Relative standard errors of the correction that is in the totals, downwards and upwards; infinite: it is not known yet.
    pub errors: [f64; 2],
    /// What that is made of, where it is told.
    pub correction: Option<Correction>,
}

/// What the totals of windows were corrected for; as json has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Correction {
    /// What a trap in a function that allocates adds to the program's own time, nanoseconds.
    pub allocating_ns: f64,
    /// Standard error of that.
    pub allocating_error_ns: f64,
    /// What one in a function that frees adds.
    pub freeing_ns: f64,
    /// Standard error of that.
    pub freeing_error_ns: f64,
    /// Relative standard error of the totals upwards because of these.
    pub of_drag: f64,
    /// The same downwards.
    #[serde(default)]
    pub of_drag_below: f64,
    /// Because of the clocks of progress.
    pub of_clock: f64,
    /// Calls of a marker in windows, which tell what a trap adds ([`crate::duty::Marks`]); 0 where there is none.
    #[serde(default)]
    pub marks: u64,
    /// Bytes that the process has read and written in windows, where these and not its clock say for how much windows stand ([`crate::duty::Tally`]); else 0.
    #[serde(default)]
    pub traffic_bytes: u64,
    /// What a word of its own memory has counted in windows, where that and not its clock says so; else 0.
    #[serde(default)]
    pub tallied: u64,
    /// Number of that word, from 1; else 0.
    #[serde(default)]
    pub tally: u32,
    /// How many words say so together, that one the best of them; else 0.
    #[serde(default)]
    pub tallies: u32,
}

/// Total, variance of what windows differ in and its degrees of freedom, and the standard error of the correction.
pub(super) struct Spread {
    pub(super) total: f64,
    pub(super) variance: f64,
    /// Downwards and upwards.
    pub(super) errors: [f64; 2],
    pub(super) freedom: f64,
}

impl Clusters {
    /// Groups that were met by windows. What has passed since the last window makes none of its own.
    pub(super) fn seen(&self) -> f64 {
        self.groups.len().min(self.windows as usize) as f64
    }

    /// Half of what both errors are together.
    pub fn error(&self) -> f64 {
        (self.errors[0] + self.errors[1]) / 2.0
    }

    /// The upper end of what groups have of something, one number for each group.
    pub fn upper(&self, of: &[f64], confidence: Confidence) -> f64 {
        match self.seen() > 1.0 {
            true => {
                let total: f64 = of.iter().sum();
                let (variance, freedom) = self.variance(of);
                total + student(confidence, freedom) * variance.sqrt()
            }
            false => f64::INFINITY,
        }
    }

    /// How far each group is from the mean of all, by what groups have of something.
    fn off<'a>(&'a self, of: &'a [f64]) -> impl DoubleEndedIterator<Item = f64> + 'a {
        let length: f64 = self.groups.iter().map(|group| group.length).sum();
        let mean = of.iter().sum::<f64>() / length;
        of.iter().zip(&self.groups).map(move |(z, group)| z - mean * group.length)
    }

    /// Variance of the sum of what groups have of something, one number for each group, and its degrees of freedom; not a number where there are not two.
    pub(super) fn variance(&self, of: &[f64]) -> (f64, f64) {
        let n = self.seen();
        let before = self.off(of).next_back();
        let squares = self.off(of).scan(before, |before, off| {
            let between = off - before.replace(off)?;
            Some(between * between)
        });
        let (all, near) = (self.of_all(of), squares.sum::<f64>() / 2.0);
        match near < (1.0 - ALIKE / n.sqrt()) * all {
            true => (near, 2.0 * n / 3.0),
            false => (all, n - 1.0),
        }
    }

    /// The first of these, by how far groups are from the mean of all.
    fn of_all(&self, of: &[f64]) -> f64 {
        let n = self.seen();
        self.off(of).map(|off| off * off).sum::<f64>() * n / (n - 1.0)
    }

    /// Relative variance of all bytes, by what windows differ in alone; not a number where nothing was seen.
    pub fn of_windows(&self) -> f64 {
        let bytes = self.bytes();
        self.variance(&bytes).0 / bytes.iter().sum::<f64>().powi(2)
    }

    /// The same where what is far apart counts as what is near: all that the program has been seen to do.
    pub fn of_phases(&self) -> f64 {
        let bytes = self.bytes();
        self.of_all(&bytes) / bytes.iter().sum::<f64>().powi(2)
    }

    fn bytes(&self) -> Vec<f64> {
        self.groups.iter().map(|group| group.total[0]).collect()
    }
}

impl Reference {
    /// `estimate`, made of the samples of `row`, with what windows add to it; the same where nothing was seen in windows.
    pub(super) fn clustered(
        &self,
        row: &Row,
        quantity: Quantity,
        estimate: Estimate,
        confidence: Confidence,
    ) -> Estimate {
        if self.clusters.is_empty() || quantity.allocated() != quantity {
            return estimate;
        }
        let pick = |of: &[f64; 2]| quantity.pick(of[0], of[1]);
        let pools = self.clusters.pools();
        let spreads: Vec<(bool, Spread)> = match row.is_whole() {
            true => pools.all().map(|pool| (pool.is_small(), pool.whole(pick))).collect(),
            false => {
                let groups = |process| {
                    let own = row.clusters_of(process);
                    own.map(|(group, sums)| (usize::from(group), pick(sums))).collect()
                };
                let of = pools.of(&self.processes_of(row));
                of.iter().map(|(pool, of)| (pool.is_small(), pool.part(of, groups))).collect()
            }
        };
        let total: f64 = spreads.iter().map(|(_, of)| of.total).sum();
        let variance: f64 = spreads.iter().map(|(_, of)| of.variance).sum();
        let fourth: f64 =
            spreads.iter().map(|(_, of)| of.variance * of.variance / of.freedom.max(1.0)).sum();
        let errors = [0, 1].map(|side| spreads.iter().map(|(_, of)| of.errors[side]).sum::<f64>());
        let few = spreads.iter().any(|(is_small, _)| *is_small);
        let value = if row.is_whole() { total } else { estimate.value };
        // Windows that have all met nothing do not differ: they tell how rare it is what was missed, and not how much that was.
        let is_unmet = row.is_whole() && total <= 0.0;
        let (low, high) = match few || is_unmet {
            true => (0.0, f64::INFINITY),
            false => {
                let half = |error: f64| {
                    let variance = variance + error * error;
                    let freedom = if fourth > 0.0 { variance * variance / fourth } else { MANY };
                    student(confidence, freedom) * variance.sqrt()
                };
                (value - half(errors[0]), value + half(errors[1]))
            }
        };
        let (low, high) = match row.is_whole() {
            // Exact totals of windows: what was sampled of them adds nothing.
            true => (low, high),
            false => (low.min(estimate.low), high.max(estimate.high)),
        };
        Estimate {
            value,
            low: low.clamp(0.0, value),
            high: high.max(value),
            method: Method::Clusters,
            ..estimate
        }
    }
}

/// With more degrees of freedom Student's law is as good as the normal one: quantiles differ by 0.1 %. The library looks for them without end where there are very many.
const MANY: f64 = 2000.0;

/// Student's quantile of 1 − α/2.
fn student(confidence: Confidence, freedom: f64) -> f64 {
    let law = StudentsT::new(0.0, 1.0, freedom.clamp(1.0, MANY));
    law.map_or(f64::INFINITY, |law| -law.inverse_cdf(confidence.alpha() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Sample, Stratum, everything, of_row};
    use crate::sampling::Rate;

    fn reference(totals: &[f64]) -> Reference {
        let groups = totals.iter().map(|bytes| Cluster { length: 10.0, total: [*bytes, 1.0] });
        let clusters = Clusters {
            groups: groups.collect(),
            windows: totals.len() as u32,
            ..Clusters::default()
        };
        Reference {
            clusters: [(0, clusters)].into_iter().collect(),
            interval_bytes: 1.0,
            ..Reference::default()
        }
    }

    fn row(each: &[f64]) -> Row {
        let mut row = Row::default();
        for (group, bytes) in each.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
            let sample =
                Sample { kept: 0.1, ..Sample::geometric((bytes / 10.0) as u64, Rate::ALWAYS) };
            row.stratum(Stratum { process: 0, class: 4 }).add_allocation(&sample);
            row.add_cluster(0, group as u16, [*bytes, 10.0]);
        }
        row
    }

    fn space(row: &Row, reference: &Reference) -> Estimate {
        let confidence = Confidence::DEFAULT;
        of_row(row, reference, Default::default(), confidence).alloc_space
    }

    #[test]
    fn the_total_has_the_interval_of_its_windows() {
        let totals = [90.0, 110.0, 95.0, 105.0, 100.0, 100.0, 100.0, 100.0];
        let reference = reference(&totals);
        let all = everything(&reference, Default::default());
        let estimate = space(&all, &reference);
        // s² = Σ(z − 100)²·8/7 = 250·8/7; t of 7 degrees of freedom: 2.3646.
        let half = 2.364_624 * (250.0f64 * 8.0 / 7.0).sqrt();
        assert_eq!((estimate.value, estimate.method), (800.0, Method::Clusters));
        assert!((estimate.high - 800.0 - half).abs() < 1e-3, "{estimate:?}");
        assert!((800.0 - estimate.low - half).abs() < 1e-3, "{estimate:?}");
    }

    #[test]
    fn what_changes_slowly_is_not_what_windows_differ_in() {
        let slow: Vec<f64> = (0..32).map(|at| if at < 16 { 50.0 } else { 150.0 }).collect();
        let clusters = |totals: &[f64]| reference(totals).clusters[&0].clone();
        let steps = clusters(&slow);
        // Twice a step of 100, against sixteen that are 50 off either way.
        let (variance, freedom) = steps.variance(&slow);
        assert!((variance - 10_000.0).abs() < 1e-6 && (freedom - 64.0 / 3.0).abs() < 1e-9);
        assert!((steps.of_phases() / steps.of_windows() - 8.0 * 32.0 / 31.0).abs() < 1e-9);
        // What differs from each window to the next is all that there is, and no more.
        let fast: Vec<f64> = (0..32).map(|at| if at % 2 == 0 { 50.0 } else { 150.0 }).collect();
        let turns = clusters(&fast);
        assert_eq!(turns.of_windows(), turns.of_phases());
        assert_eq!(turns.variance(&fast).1, 31.0);
        // Wherever the one group is that has all of a row it is all that is known of it.
        for at in [0, 1, 15, 31] {
            let mut once = [0.0; 32];
            once[at] = 100.0;
            let off = steps.variance(&once).0 - 10_000.0;
            assert!(off.abs() < 1e-6, "{at}: {off}");
        }
    }

    /// Numbers between 0 and 1, always the same ones.
    fn uniform() -> impl FnMut() -> f64 {
        let mut state = 5u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        }
    }

    #[test]
    fn programs_that_change_slowly_have_narrow_intervals_that_are_right() {
        const RUNS: usize = 2000;
        let mean =
            |at: usize| 100.0 * (1.0 + 0.8 * (at as f64 / 24.0 * core::f64::consts::TAU).sin());
        let mut random = uniform();
        let (mut inside, mut narrower) = (0, 0.0);
        for _ in 0..RUNS {
            let each: Vec<f64> = (0..24).map(|at| mean(at) * (0.5 + random())).collect();
            let reference = reference(&each);
            let all = space(&everything(&reference, Default::default()), &reference);
            inside += usize::from(all.low <= 2400.0 && 2400.0 <= all.high);
            let clusters = &reference.clusters[&0];
            narrower += (clusters.of_windows() / clusters.of_phases()).sqrt() / RUNS as f64;
        }
        // Of 2,000 at 95 % fewer than 1,853 come once in a million times.
        assert!(inside >= 1853 && narrower < 0.6, "{inside} of {RUNS}, {narrower}");
    }

    #[test]
    fn a_slow_change_is_seldom_found_where_there_is_none() {
        let mut random = uniform();
        for n in [8usize, 16, 32] {
            let mut is_near = |_| {
                let each: Vec<f64> = (0..n).map(|_| random()).collect();
                let reference = reference(&each);
                reference.clusters[&0].variance(&each).1 < n as f64 - 1.0
            };
            let found = (0..2000).map(&mut is_near).filter(|found| *found).count();
            // Of 2,000 at 1 % more than 50 come less than once in a million times.
            assert!(found <= 50, "{found} of 2,000 with {n} groups");
        }
    }

    #[test]
    fn too_few_windows_make_no_interval() {
        let reference = reference(&[100.0; 7]);
        let all = space(&everything(&reference, Default::default()), &reference);
        assert!(!all.has_interval() && all.value == 700.0, "{all:?}");
        assert!(!space(&row(&[100.0; 7]), &reference).has_interval());
    }

    #[test]
    fn windows_that_have_met_nothing_make_none() {
        let reference = reference(&[0.0; 178]);
        let all = space(&everything(&reference, Default::default()), &reference);
        assert!(!all.has_interval() && all.value == 0.0 && all.low == 0.0, "{all:?}");
    }

    #[test]
    fn a_row_that_was_met_once_may_be_anything() {
        let reference = reference(&[1000.0; 20]);
        let mut each = [0.0; 20];
        each[3] = 100.0;
        let estimate = space(&row(&each), &reference);
        assert_eq!(estimate.value, 100.0);
        // One sample of κ = 0.1: as one sample of π = 0.1 alone, or more.
        assert!(estimate.low < 11.0 && estimate.high > 300.0, "{estimate:?}");
    }

    #[test]
    fn rows_of_windows_add() {
        let reference = reference(&[300.0; 10]);
        let (mut a, b) = (row(&[100.0; 10]), row(&[200.0; 10]));
        let (of_a, of_b) = (space(&a, &reference), space(&b, &reference));
        a.add(&b);
        let sum = space(&a, &reference);
        assert_eq!(sum.value, of_a.value + of_b.value);
        // What is the same in all windows has the variance of its samples only.
        assert!(sum.high - sum.value < of_a.high - of_a.value + of_b.high - of_b.value);
        assert_eq!(a.clusters_of(0).count(), 10);
    }

    #[test]
    fn the_error_of_the_correction_is_in_the_interval() {
        let mut reference = reference(&[100.0; 10]);
        let set = |reference: &mut Reference, error| {
            let of = Clusters { errors: [error / 2.0, error], ..reference.clusters[&0].clone() };
            reference.clusters.insert(0, of);
        };
        set(&mut reference, 0.1);
        let all = space(&everything(&reference, Default::default()), &reference);
        // The correction's error is known, as far as anybody knows: the normal law's 1.9612 of very many degrees of freedom.
        assert!(all.value == 1000.0 && (all.high - 1196.1).abs() < 0.1, "{all:?}");
        assert!((all.low - 901.9).abs() < 0.1, "{all:?}");
        set(&mut reference, f64::INFINITY);
        assert!(!space(&everything(&reference, Default::default()), &reference).has_interval());
    }
}
