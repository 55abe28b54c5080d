//! Sampling strategies compared by their variance, for what a process allocates and keeps.
//!
//! Plainly: every strategy may take the same number of samples. How far off are its totals then,
//! and how far off would the totals of the best possible choice of chances be?
//!
//! # Formulas
//!
//! For size classes with a allocations of mean size Z, l of them live, each sampled with
//! probability p:
//!
//! ```text
//! samples            Σ a·p
//! Var(allocated)     Σ a·Z²·(1 − p)/p
//! Var(live)          Σ l·Z²·(1 − p)/p
//! geometric          p = 1 − (1 − 1/R)^Z
//! bernoulli          p the same for all
//! poisson            p = 1 − e^(−Z/R′), 1 from Z ≥ R′·ln 100; the number of points counts, so that a class adds a·R′·Z
//!                    and l·R′·Z in place of the terms above, and nothing where it is certain
//! adaptive           p as by crate::sampling::adapt
//! least              p = min(1, c·Z·√(l/a)), for allocated bytes min(1, c·Z)
//! ```
//!
//! with p of bernoulli, R′ and c such that Σ a·p is the number of samples of geometric at R. Source
//! of the variances and of the question: "jemalloc profiling internals". The last line solves its
//! convex problem (Lagrange; the terms are convex, so a bound at 1 passes the rest of the budget to
//! the other classes). The least variance has no floor: it leaves classes without live blocks
//! unsampled, which a strategy that does not know the future cannot.

use crate::limits::CLASSES;
use crate::sampling::{ClassUse, Strategy, adapt};

/// Rounds of bisection: 2⁻¹⁰⁰ of the first guess is beyond a float.
const BISECTION_ROUNDS: usize = 100;

/// Expected samples and variances of one way to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variances {
    /// Expected samples.
    pub samples: f64,
    /// Variance of the allocated bytes, bytes².
    pub alloc: f64,
    /// Variance of the live bytes, bytes².
    pub live: f64,
}

/// The strategies at one number of samples, and the least possible variances at this number.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategies {
    /// Every strategy with a variance (all but stride).
    pub strategies: Vec<(Strategy, Variances)>,
    /// Least variance of the allocated bytes.
    pub least_alloc: f64,
    /// Least variance of the live bytes.
    pub least_live: f64,
}

impl Strategies {
    /// The factor by which a variance exceeds the least variance; 1 where both are 0.
    pub fn ratio(variance: f64, least: f64) -> f64 {
        if variance <= least { 1.0 } else { variance / least }
    }

    /// The variances of a strategy.
    pub fn of(&self, strategy: Strategy) -> Option<&Variances> {
        self.strategies.iter().find(|(of, _)| *of == strategy).map(|(_, variances)| variances)
    }
}

/// A class that is in use.
#[derive(Clone, Copy)]
struct Class {
    objects: f64,
    live: f64,
    size: f64,
}

/// Compares the strategies for `classes` at the number of samples that geometric takes at
/// `interval_bytes` (1 … 2^32); `None` if nothing was allocated.
pub fn strategies(classes: &[ClassUse; CLASSES], interval_bytes: f64) -> Option<Strategies> {
    let used: Vec<(usize, Class)> = classes
        .iter()
        .enumerate()
        .filter(|(_, of)| of.objects > 0.0 && of.objects.is_finite() && of.bytes.is_finite())
        .map(|(index, of)| {
            let live = of.live_objects.clamp(0.0, of.objects);
            (index, Class { objects: of.objects, live, size: (of.bytes / of.objects).max(1.0) })
        })
        .collect();
    if used.is_empty() || !(interval_bytes >= 1.0 && interval_bytes.is_finite()) {
        return None;
    }
    let all: Vec<Class> = used.iter().map(|(_, class)| *class).collect();
    let hazard = -(-1.0 / interval_bytes).ln_1p();
    let geometric = trials(&all, |of| hit(hazard * of.size));
    let budget = geometric.samples;
    let requests: f64 = all.iter().map(|of| of.objects).sum();
    let designs = adapt(classes, interval_bytes);
    let adaptive: Vec<f64> = used
        .iter()
        .map(|(index, of)| designs[*index].inclusion(of.size.round() as u64).unwrap_or(1.0))
        .collect();
    let mut chances = adaptive.iter().copied();
    let adaptive = trials(&all, |_| chances.next().unwrap_or(1.0));
    Some(Strategies {
        strategies: vec![
            (Strategy::Geometric, geometric),
            (Strategy::Poisson, poisson(&all, budget, interval_bytes)),
            (Strategy::Bernoulli, trials(&all, |_| (budget / requests).min(1.0))),
            (Strategy::Adaptive, adaptive),
        ],
        least_alloc: least(&all, budget, |of| of.size).alloc,
        least_live: least(&all, budget, |of| of.size * (of.live / of.objects).sqrt()).live,
    })
}

/// Chance of at least one hit.
fn hit(hazard: f64) -> f64 {
    -(-hazard).exp_m1()
}

/// Each allocation is one trial of probability `chance`.
fn trials(classes: &[Class], mut chance: impl FnMut(&Class) -> f64) -> Variances {
    let mut sums = Variances { samples: 0.0, alloc: 0.0, live: 0.0 };
    for of in classes {
        let p = chance(of);
        // A class without allocations or live blocks may go without samples.
        let term =
            |count: f64| if count > 0.0 { count * of.size * of.size * (1.0 - p) / p } else { 0.0 };
        sums.samples += of.objects * p;
        sums.alloc += term(of.objects);
        sums.live += term(of.live);
    }
    sums
}

/// Poisson points at the interval that takes `budget` samples; the search starts at `near`.
fn poisson(classes: &[Class], budget: f64, near: f64) -> Variances {
    let at = |interval: f64| {
        let mut sums = Variances { samples: 0.0, alloc: 0.0, live: 0.0 };
        for of in classes {
            let points = of.size / interval;
            if points >= 100f64.ln() {
                sums.samples += of.objects;
            } else {
                sums.samples += of.objects * hit(points);
                sums.alloc += of.objects * interval * of.size;
                sums.live += of.live * interval * of.size;
            }
        }
        sums
    };
    // Samples fall as the interval grows; in steps at the cut-off.
    let (mut low, mut high) = (near / 16.0, near * 16.0);
    for _ in 0..BISECTION_ROUNDS {
        let middle = (low * high).sqrt();
        if at(middle).samples > budget { low = middle } else { high = middle }
    }
    at(high)
}

/// p = min(1, c·wish) with the c that spends `budget`.
fn least(classes: &[Class], budget: f64, wish: impl Fn(&Class) -> f64) -> Variances {
    let cost =
        |c: f64| -> f64 { classes.iter().map(|of| of.objects * (c * wish(of)).min(1.0)).sum() };
    let smallest =
        classes.iter().map(&wish).filter(|wish| *wish > 0.0).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, 1.0 / smallest);
    for _ in 0..BISECTION_ROUNDS {
        let middle = 0.5 * (low + high);
        if cost(middle) > budget { high = middle } else { low = middle }
    }
    // If every class with live blocks can be certain, c is at its upper end.
    trials(classes, |of| if smallest.is_finite() { (high * wish(of)).min(1.0) } else { 1.0 })
}

/// The largest relative error over all sizes Z of weights 1/(1 − …) with e^(−Z/R) in place of
/// (1 − 1/R)^Z, and its Z.
///
/// jemalloc, tcmalloc and the tools that read their profiles use e^(−Z/R). The error is about
/// 1/(2R) for 1 byte and falls with the size.
pub fn exponential_error(interval_bytes: f64) -> (f64, u64) {
    let errors = (0..=40).map(|power| {
        let size = 1u64 << power;
        let bytes = size as f64;
        let exact = hit(bytes * -(-1.0 / interval_bytes).ln_1p());
        ((exact / hit(bytes / interval_bytes) - 1.0).abs(), size)
    });
    errors.fold((0.0, 1), |worst, of| if of.0 > worst.0 { of } else { worst })
}
