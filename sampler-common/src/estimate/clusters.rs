//! Intervals of rows that were seen in windows only ([`crate::windows`]). They follow from the
//! differences between groups of windows.
//!
//! # Derivation
//!
//! A row has z_g in the g-th group of windows: the sum of its samples' weights, each divided by the
//! probability of its window. The group stands for Λ_g ticks. Let T = Σz_g, Λ = ΣΛ_g and r_g = z_g
//! − T·Λ_g/Λ. If the row is constant in time, each z_g is an estimate of T·Λ_g/Λ. If it is not, z_g
//! is an estimate of more or less:
//!
//! ```text
//! var(T) ≤ n/(n−1) · Σ r_g²
//! ```
//!
//! in expectation, with equality where the strata are alike. The variance of samples within windows
//! is part of it (Cochran, "Sampling Techniques", chapters 5A.12 and 10.4). The interval is
//! Student's with n − 1 degrees of freedom.
//!
//! Variances of several processes add, with the degrees of freedom of F. E. Satterthwaite
//! (Biometrics Bulletin 2, 1946). A process with fewer than [`MIN_WINDOWS`] windows has no
//! interval, and neither has a row that includes such a process. Few samples in few groups give
//! little information on their variance. So the interval is never narrower than that of the samples
//! alone ([`mod@super::weighted`]).
//!
//! # The bound of the probe effect
//!
//! A trap empties pipelines and caches, so the program's own code is slower after the trap. The
//! clock ticks in that code. Let a window have t nanoseconds of the program's own time and A traps,
//! and let m be the delay by one trap. The window then has the progress of t − m·A nanoseconds
//! without probes. m differs from program to program and is not measured.
//!
//! With m ≤ M = [`PROBE_EFFECT_NS`] the estimate is too low by at most the factor t/(t − M·A). The
//! upper end carries this factor, for each group by its own t and A. Where M·A ≥ t, the interval
//! has no upper end. The value and the lower end are those of m = 0.

use super::quantity::Quantity;
use super::{Confidence, Estimate, Method, Reference, Row};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Fewest windows of a process that make an interval.
pub const MIN_WINDOWS: u32 = 8;

/// M: the most that a trap adds to the program's own time, nanoseconds.
///
/// The largest measured effects are 350 ns in a whole program and 600 ns at an isolated hit
/// (docs/windows.md).
pub const PROBE_EFFECT_NS: f64 = 600.0;

/// A group of windows of a process, expanded to all of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cluster {
    /// The ticks that the group stands for.
    pub length: f64,
    /// Bytes and objects allocated, estimated from exact totals of the windows.
    pub total: [f64; 2],
    /// The program's own time in the windows, nanoseconds: t.
    pub own_ns: f64,
    /// Traps in the windows: A.
    pub traps: f64,
}

impl Cluster {
    /// t/(t − M·A): the estimate is too low by this factor at most. Infinite if traps may have
    /// taken all of the time.
    pub fn effect(&self) -> f64 {
        let left = self.own_ns - PROBE_EFFECT_NS * self.traps;
        match (self.traps > 0.0, left > 0.0) {
            (false, _) => 1.0,
            (true, true) => self.own_ns / left,
            (true, false) => f64::INFINITY,
        }
    }
}

/// The windows of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clusters {
    /// Groups of windows in chronological order.
    pub groups: Vec<Cluster>,
    /// Number of windows.
    pub windows: u32,
}

/// A sum over the groups of a process: its value, its variance between windows and the degrees of
/// freedom, and value and variance of its upper end.
struct Spread {
    total: f64,
    variance: f64,
    freedom: f64,
    upper_total: f64,
    upper_variance: f64,
}

impl Clusters {
    /// Number of groups that have a window.
    fn seen(&self) -> f64 {
        self.groups.len().min(self.windows as usize) as f64
    }

    /// Whether the windows are too few for an interval.
    fn are_few(&self) -> bool {
        self.windows < MIN_WINDOWS
    }

    /// The upper end of a quantity, given as one number for each group; infinite with too few
    /// groups.
    pub fn upper(&self, of: &[f64], confidence: Confidence) -> f64 {
        if self.seen() <= 1.0 {
            return f64::INFINITY;
        }
        let spread = self.spread(of);
        spread.upper_total + student(confidence, spread.freedom) * spread.upper_variance.sqrt()
    }

    /// The sum of a quantity, given as one number for each group.
    fn spread(&self, of: &[f64]) -> Spread {
        let effect = |(z, group): (&f64, &Cluster)| if *z > 0.0 { z * group.effect() } else { 0.0 };
        let upper: Vec<f64> = of.iter().zip(&self.groups).map(effect).collect();
        let upper_total: f64 = upper.iter().sum();
        let upper_variance = match upper_total.is_finite() {
            true => self.variance(&upper),
            false => f64::INFINITY,
        };
        Spread {
            total: of.iter().sum(),
            variance: self.variance(of),
            freedom: self.seen() - 1.0,
            upper_total,
            upper_variance,
        }
    }

    /// Variance of the sum of a quantity, given as one number for each group; NaN with fewer than
    /// two groups.
    fn variance(&self, of: &[f64]) -> f64 {
        let length: f64 = self.groups.iter().map(|group| group.length).sum();
        let mean = of.iter().sum::<f64>() / length;
        let residual = |(z, group): (&f64, &Cluster)| (z - mean * group.length).powi(2);
        let squares: f64 = of.iter().zip(&self.groups).map(residual).sum();
        let n = self.seen();
        squares * n / (n - 1.0)
    }
}

impl Reference {
    /// `estimate` of the samples of `row`, with the variance between windows added; unchanged
    /// without windows.
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
        let sums = |process: u32, clusters: &Clusters| -> Vec<f64> {
            if row.is_whole() {
                return clusters.groups.iter().map(|group| pick(&group.total)).collect();
            }
            let mut sums = vec![0.0; clusters.groups.len()];
            for (group, of) in row.clusters_of(process) {
                if let Some(sum) = sums.get_mut(usize::from(group)) {
                    *sum += pick(of);
                }
            }
            sums
        };
        let of_row = self.processes_of(row);
        let is_in = |process: &u32| row.is_whole() || of_row.contains(process);
        let clusters: Vec<_> = self.clusters.iter().filter(|(process, _)| is_in(process)).collect();
        let few = clusters.iter().any(|(_, of)| of.are_few());
        let spreads = clusters.iter().map(|(process, of)| of.spread(&sums(**process, of)));
        let spreads: Vec<Spread> = spreads.collect();
        let sum = |of: fn(&Spread) -> f64| spreads.iter().map(of).sum::<f64>();
        let (total, variance) = (sum(|of| of.total), sum(|of| of.variance));
        let fourth = sum(|of| of.variance * of.variance / of.freedom.max(1.0));
        let freedom = if fourth > 0.0 { variance * variance / fourth } else { MAX_FREEDOM };
        let value = if row.is_whole() { total } else { estimate.value };
        // Windows without any allocation do not differ: they say how rare allocations are, not how
        // large the missed ones were.
        let is_empty = row.is_whole() && total <= 0.0;
        let (low, high) = match few || is_empty {
            true => (0.0, f64::INFINITY),
            false => {
                let quantile = student(confidence, freedom);
                let added = sum(|of| of.upper_total) - total;
                let above = quantile * sum(|of| of.upper_variance).sqrt();
                (value - quantile * variance.sqrt(), value + added + above)
            }
        };
        let (low, high) = match row.is_whole() {
            // Exact totals of windows: the samples in them add no variance.
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

/// Degrees of freedom from which Student's law equals the normal one: quantiles differ by 0.1 %.
/// The library's search for a quantile does not end at very many degrees of freedom.
const MAX_FREEDOM: f64 = 2000.0;

/// Student's quantile of 1 − α/2.
fn student(confidence: Confidence, freedom: f64) -> f64 {
    let law = StudentsT::new(0.0, 1.0, freedom.clamp(1.0, MAX_FREEDOM));
    law.map_or(f64::INFINITY, |law| -law.inverse_cdf(confidence.alpha() / 2.0))
}

#[cfg(test)]
mod tests;
