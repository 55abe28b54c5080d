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

    /// How far each group is from the mean of all, by what groups have of something: r_g.
    fn off(&self, of: &[f64]) -> Vec<f64> {
        let length: f64 = self.groups.iter().map(|group| group.length).sum();
        let mean = of.iter().sum::<f64>() / length;
        of.iter().zip(&self.groups).map(|(z, group)| z - mean * group.length).collect()
    }

    /// Variance of the sum of what groups have of something, one number for each group, and its degrees of freedom; not a number where there are not two.
    pub(super) fn variance(&self, of: &[f64]) -> (f64, f64) {
        let (n, off) = (self.seen(), self.off(of));
        let before = off.iter().cycle().skip(off.len().saturating_sub(1));
        let near = off.iter().zip(before).map(|(off, before)| (off - before).powi(2)).sum::<f64>();
        let (near, all) = (near / 2.0, self.around_mean(&off));
        match near < (1.0 - ALIKE / n.sqrt()) * all {
            true => (near, 2.0 * n / 3.0),
            false => (all, n - 1.0),
        }
    }

    /// The same by the first formula, whatever neighbours are like.
    fn around_mean(&self, off: &[f64]) -> f64 {
        let n = self.seen();
        off.iter().map(|off| off * off).sum::<f64>() * n / (n - 1.0)
    }

    /// Relative variance of all bytes, by what windows differ in alone; not a number where nothing was seen.
    pub fn of_windows(&self) -> f64 {
        let bytes = self.bytes();
        self.variance(&bytes).0 / bytes.iter().sum::<f64>().powi(2)
    }

    /// The same where what is far apart counts as what is near: all that the program has been seen to do.
    pub fn of_phases(&self) -> f64 {
        let bytes = self.bytes();
        self.around_mean(&self.off(&bytes)) / bytes.iter().sum::<f64>().powi(2)
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
mod tests;
