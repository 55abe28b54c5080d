//! Adaptive rates: which share of each size class to sample, so that live bytes are estimated best.
//!
//! Plainly: samples of blocks that are freed at once give no information on what is held. A class
//! that is allocated often but hardly ever kept needs few samples; a class that mostly stays needs
//! more. A class's chance grows with its size and with the square root of the share of it that
//! lives.
//!
//! # Derivation
//!
//! For each size class with a allocations of mean size Z, of which l are live, and a chance p of
//! one allocation:
//!
//! ```text
//! minimize    Σ l·Z²·(1 − p)/p        the variance of the live bytes
//! subject to  Σ a·p = B               the samples it may cost
//!             p_floor ≤ p ≤ 1
//! ```
//!
//! Lagrange's condition −l·Z²/p² + μ·a = 0 gives p = c·Z·√(l/a). With the bounds, since each term
//! is convex in its own p,
//!
//! ```text
//! p = min(1, max(p_floor, c·Z·√(l/a)))
//! ```
//!
//! with the one c that spends the budget: what a class cannot use beyond 1 goes to the other
//! classes. B is what a geometric countdown of interval R would take of the same allocations,
//! Σ a·(1 − (1 − 1/R)^Z).
//!
//! The floor is a geometric countdown of a third of its hazard, so about a third of the budget.
//! What was learned may be out of date, and a class that was never seen is unbiased only if it has
//! a chance. If all live classes are certain and budget is left, the floor is raised until the
//! budget is spent.
//!
//! Why a third: compared with the geometric countdown, the variance of live bytes is 2.0 to 2.1
//! times lower, and that of allocated bytes 1.6 to 1.8 times higher (`cargo xtask simulate`,
//! survival from 0.1 % to 90 %). With a twentieth the factors are 2.3 and 4. Intervals of allocated
//! bytes then get too wide, because the few samples of a class that dies young weigh too much.
//!
//! Within a class, λ = −ln(1 − p)/Z is charged per byte, as for every rate.
//!
//! Source: "jemalloc profiling internals" poses the problem as an avenue for future exploration.
//! Live counts are estimates from earlier samples, and allocations are exact. Both must be older
//! than the samples that are then taken with them.

use super::rate::{HAZARD_ONE, MAX_INTERVAL_BYTES};
use super::{Design, Rate, Strategy};
use crate::limits::CLASSES;

/// Hazard of the floor, as a share of the hazard of the geometric countdown with the same budget.
pub const FLOOR: f64 = 1.0 / 3.0;

/// The recent use of a size class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassUse {
    /// Allocations, exact.
    pub objects: f64,
    /// Bytes of the allocations, exact.
    pub bytes: f64,
    /// Blocks of the class that are held, estimated.
    pub live_objects: f64,
}

impl ClassUse {
    /// Mean size in bytes, at least 1; only for a class that was used.
    fn size(&self) -> f64 {
        (self.bytes / self.objects).max(1.0)
    }

    fn is_used(&self) -> bool {
        let sane = self.objects.is_finite() && self.bytes.is_finite() && self.bytes >= 0.0;
        sane && self.objects > 0.0
    }

    /// The weight of the class in p = c·Z·√(l/a): Z·√(l/a).
    fn wish(&self) -> f64 {
        let live = self.live_objects;
        let wish = self.size() * (live / self.objects).sqrt();
        if live > 0.0 && wish.is_finite() { wish } else { 0.0 }
    }
}

/// The designs of least variance of live bytes at the cost of a geometric countdown of
/// `interval_bytes` (clamped to 1 … 2^32).
///
/// If nothing was learned (no class used, or no block known to live), the designs are geometric. A
/// class that was not used has the floor's rate. Uses that are not finite numbers count as none.
pub fn adapt(classes: &[ClassUse; CLASSES], interval_bytes: f64) -> [Design; CLASSES] {
    let geometric = geometric_hazard(interval_bytes);
    let used: Vec<&ClassUse> = classes.iter().filter(|class| class.is_used()).collect();
    if !used.iter().any(|class| class.wish() > 0.0) {
        return [design(geometric); CLASSES];
    }
    let (floor, scale) = spend(&used, geometric);
    classes.each_ref().map(|class| {
        if !class.is_used() {
            return design(floor);
        }
        let chance = chance(class, floor, scale);
        let hazard = -(-chance).ln_1p() / class.size();
        // The floor is used directly, without the detour through its chance.
        design(hazard.max(floor))
    })
}

/// λ of a geometric countdown.
fn geometric_hazard(interval_bytes: f64) -> f64 {
    let longest = MAX_INTERVAL_BYTES as f64;
    let interval = if interval_bytes <= longest { interval_bytes.max(1.0) } else { longest };
    -(-1.0 / interval).ln_1p()
}

/// The design of λ per byte; an infinite λ means "always".
fn design(hazard: f64) -> Design {
    let raw = (hazard * HAZARD_ONE as f64).round() as u64; // saturates
    Design::new(Strategy::Adaptive, Rate::from_raw(raw.max(1)))
}

/// p of a class at floor hazard `floor` and c = `scale`.
fn chance(class: &ClassUse, floor: f64, scale: f64) -> f64 {
    let least = -(-floor * class.size()).exp_m1();
    least.max((scale * class.wish()).min(1.0))
}

/// The floor's hazard and the c with which the budget is spent.
fn spend(used: &[&ClassUse], geometric: f64) -> (f64, f64) {
    let cost = |floor: f64, scale: f64| -> f64 {
        used.iter().map(|class| class.objects * chance(class, floor, scale)).sum()
    };
    let budget = cost(geometric, 0.0);
    let floor = FLOOR * geometric;
    // With this c every live class is certain.
    let wishes = used.iter().map(|class| class.wish()).filter(|wish| *wish > 0.0);
    let all = wishes.fold(f64::INFINITY, f64::min).recip();
    if cost(floor, all) >= budget {
        (floor, bisect(all, |scale| cost(floor, scale) >= budget))
    } else if geometric.is_finite() {
        (bisect(geometric, |floor| cost(floor, all) >= budget), all)
    } else {
        (geometric, all)
    }
}

/// The point in (0, `most`] from which the monotone `reached` is true; `reached` is true at `most`.
fn bisect(most: f64, reached: impl Fn(f64) -> bool) -> f64 {
    let (mut below, mut above) = (0.0, most);
    // The scale may lie many powers of ten below `most`: halve until no float lies between the
    // bounds.
    for _ in 0..2000 {
        let middle = if below > 0.0 { 0.5 * (below + above) } else { above / 16.0 };
        if middle <= below || middle >= above {
            break;
        }
        if reached(middle) { above = middle } else { below = middle }
    }
    above
}
