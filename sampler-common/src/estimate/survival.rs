//! Lifetimes of blocks, from samples of which some still live: survival curves, medians, shares.
//!
//! Plainly: of the blocks that were still held just before an age, which share was freed at that
//! age? The product of the remaining shares up to an age is the share that lives longer. Blocks
//! that are held now, and blocks of processes that ended, are *censored*: they were watched up to
//! some age. They count in every share up to that age. Without them lifetimes would be too short,
//! and the same if they counted as freed. Either would be wrong where it matters most, for leaks.
//!
//! A sample stands for 1/π blocks like it, so it counts with its weight w (here w = s/π: the curves
//! are of bytes).
//!
//! # Derivation
//!
//! E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", JASA 53
//! (1958), with sums of weights in place of counts. With d_j the weight freed at age t_j and n_j
//! the weight watched at least up to t_j,
//!
//! ```text
//! Ŝ(t) = Π_{t_j ≤ t} (1 − h_j),   h_j = d_j/n_j
//! ```
//!
//! Its variance is that of a function of weighted sums, made linear (D. A. Binder, "Fitting Cox's
//! proportional hazards models from survey data", Biometrika 79 (1992), for the method; R. L.
//! Williams, "Product-limit survival functions with correlated survival times", Lifetime Data
//! Analysis 1 (1995), for this estimator):
//!
//! ```text
//! Var ln Ŝ(t) = Σ_i w_i²ψ_i²,   ψ_i = Σ_{t_j ≤ t, i watched at t_j} ([i freed at t_j] − h_j) / (n_j(1 − h_j))
//! ```
//!
//! For equal weights the products of different ages cancel, and the rest is M. Greenwood's formula
//! Σ d_j/(n_j(n_j − d_j)) ("The natural duration of cancer", 1926). With
//! A_j = Σ_{k ≤ j} h_k/(n_k(1 − h_k)), ψ of a block that was freed at t_j is 1/n_j − A_{j−1}, and ψ
//! of a block last seen at c is −A(c). So one pass computes the sum.
//!
//! The variance is turned into a number of effective samples n* = Ŝ(1 − Ŝ)/(Ŝ²·Var ln Ŝ), and the
//! interval is that of Clopper and Pearson for n*Ŝ of n* (E. L. Korn and B. I. Graubard,
//! "Confidence intervals for proportions with small expected number of positive counts estimated
//! from survey data", Survey Methodology 24 (1998)). Where the variance has no meaning (nothing
//! freed yet, or everything), n* is L. Kish's (Σw)²/Σw² over the watched blocks.
//!
//! The interval is for the law of lifetimes of this code's blocks. Even all blocks of a program are
//! only a sample of that law, so the interval does not close if every allocation is sampled.

mod interval;

use super::Confidence;
use interval::Proportion;

/// Weights of a set of samples. Weights of disjoint sets add.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Number of samples.
    pub samples: u64,
    /// Σw
    pub sum: f64,
    /// Σw²
    pub squares: f64,
}

impl Weights {
    /// Adds a sample that stands for `weight` (finite, at least 0).
    pub fn add_sample(&mut self, weight: f64) {
        self.add(&Weights { samples: 1, sum: weight, squares: weight * weight });
    }

    /// Adds a disjoint set.
    pub fn add(&mut self, other: &Weights) {
        self.samples += other.samples;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    fn take(&mut self, other: &Weights) {
        self.samples -= other.samples;
        // The sums were added in another order, so rounding may leave the last difference below 0.
        self.sum = if self.samples == 0 { 0.0 } else { (self.sum - other.sum).max(0.0) };
        self.squares =
            if self.samples == 0 { 0.0 } else { (self.squares - other.squares).max(0.0) };
    }

    /// (Σw)²/Σw²: the number of equal weights that would give the same precision; 0 without any
    /// weight.
    pub fn effective(&self) -> f64 {
        if self.squares > 0.0 { self.sum * self.sum / self.squares } else { 0.0 }
    }
}

/// The ends of blocks at one age. Blocks that were censored at an age count as watched at that age.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// The age, nanoseconds.
    pub age_ns: f64,
    /// Blocks freed at this age.
    pub freed: Weights,
    /// Blocks last seen alive at this age.
    pub censored: Weights,
}

/// A share in [0, 1] with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The age that half of the bytes outlive, nanoseconds.
///
/// `None`: the oldest watched block did not reach the median, so it is later or never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The estimate.
    pub value: Option<f64>,
    /// Lower end (0 if nothing is known).
    pub low: f64,
    /// Upper end.
    pub high: Option<f64>,
}

/// A point of the curve: its values hold from its age to the next point's.
#[derive(Clone, Copy, Debug)]
struct Point {
    age_ns: f64,
    /// Ŝ, just after the age.
    surviving: f64,
    /// n*
    effective: f64,
}

/// A survival curve.
#[derive(Clone, Debug, Default)]
pub struct Survival {
    points: Vec<Point>,
    /// Effective number of all samples.
    effective: f64,
    /// The oldest observed age.
    oldest_ns: f64,
}

impl Survival {
    /// The curve of the steps, in any order.
    pub fn new(mut steps: Vec<Step>) -> Survival {
        steps.sort_by(|a, b| a.age_ns.total_cmp(&b.age_ns));
        // Steps of one age become one step.
        steps.dedup_by(|next, first| {
            let same = next.age_ns == first.age_ns;
            if same {
                first.freed.add(&next.freed);
                first.censored.add(&next.censored);
            }
            same
        });
        let mut watched = Weights::default();
        for step in &steps {
            watched.add(&step.freed);
            watched.add(&step.censored);
        }
        let mut curve = Survival { effective: watched.effective(), ..Survival::default() };
        // A, and Σw²ψ² of the blocks that have ended.
        let (mut surviving, mut sum, mut gone) = (1.0, 0.0, 0.0);
        let mut effective = curve.effective;
        for step in &steps {
            curve.oldest_ns = step.age_ns;
            let (freed, total) = (step.freed.sum, watched.sum);
            let share = if total > 0.0 { (freed / total).min(1.0) } else { 0.0 };
            let last = watched.samples == step.freed.samples || share >= 1.0;
            if freed > 0.0 && !last {
                gone += step.freed.squares * (1.0 / total - sum).powi(2);
                sum += share / (total * (1.0 - share));
                surviving *= 1.0 - share;
            }
            watched.take(&step.freed);
            if last && freed > 0.0 {
                surviving = 0.0; // n* stays that of the age before
            } else {
                let variance = gone + watched.squares * sum * sum;
                effective = curve.worth(surviving, variance, &watched);
            }
            gone += step.censored.squares * sum * sum;
            watched.take(&step.censored);
            curve.points.push(Point { age_ns: step.age_ns, surviving, effective });
        }
        curve
    }

    /// n* of a point where `watched` have not been freed.
    fn worth(&self, surviving: f64, variance: f64, watched: &Weights) -> f64 {
        if surviving < 1.0 && variance > 0.0 {
            ((1.0 - surviving) / (surviving * variance)).min(self.effective)
        } else {
            watched.effective()
        }
    }

    /// The share of bytes that live longer than `age_ns`.
    pub fn beyond(&self, age_ns: f64, confidence: Confidence) -> Share {
        let tail = confidence.alpha() / 2.0;
        let proportion = self.proportion(age_ns);
        let value = proportion.share;
        // No block was watched that long: all blocks may have been freed since.
        let watched = age_ns <= self.oldest_ns || value == 0.0;
        let low = if watched { proportion.low(tail) } else { 0.0 };
        Share { value, low: low.min(value), high: proportion.high(tail).max(value) }
    }

    /// The standard deviation of the share that lives longer than `age_ns`.
    pub fn deviation(&self, age_ns: f64) -> f64 {
        let Proportion { share, effective } = self.proportion(age_ns);
        if effective > 0.0 { (share * (1.0 - share) / effective).sqrt() } else { f64::INFINITY }
    }

    /// The share of bytes that are freed at `age_ns` or before.
    pub fn within(&self, age_ns: f64, confidence: Confidence) -> Share {
        let beyond = self.beyond(age_ns, confidence);
        Share { value: 1.0 - beyond.value, low: 1.0 - beyond.high, high: 1.0 - beyond.low }
    }

    fn proportion(&self, age_ns: f64) -> Proportion {
        match self.points.partition_point(|point| point.age_ns <= age_ns) {
            0 => Proportion { share: 1.0, effective: self.effective },
            number => self.points[number - 1].proportion(),
        }
    }

    /// The median lifetime. Its interval holds every age at which the curve's interval contains ½
    /// (R. Brookmeyer and J. Crowley, "A confidence interval for the median survival time",
    /// Biometrics 38 (1982)).
    pub fn median(&self, confidence: Confidence) -> Median {
        let tail = confidence.alpha() / 2.0;
        let first = |reached: &dyn Fn(&Point) -> bool| {
            self.points.iter().find(|point| reached(point)).map(|point| point.age_ns)
        };
        let start = Proportion { share: 1.0, effective: self.effective };
        let low = match start.low_is_at_most(0.5, tail) {
            true => Some(0.0),
            false => first(&|point| point.proportion().low_is_at_most(0.5, tail)),
        };
        Median {
            value: first(&|point| point.surviving <= 0.5),
            low: low.unwrap_or(self.oldest_ns),
            high: first(&|point| point.proportion().high_is_below(0.5, tail)),
        }
    }
}

impl Point {
    fn proportion(&self) -> Proportion {
        Proportion { share: self.surviving, effective: self.effective }
    }
}
