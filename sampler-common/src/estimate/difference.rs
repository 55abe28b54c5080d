//! The difference of two totals of independent samples, its interval and its significance.
//!
//! Plainly: a stack's bytes differ between two profiles for two reasons: the program changed, and
//! other allocations happened to be sampled. The interval says how large the real change may be. If
//! nothing changed, chance alone makes a difference as large as this one with probability p. Among
//! a thousand stacks some p are small by chance, so they are adjusted before any is called
//! significant.
//!
//! # Interval
//!
//! With one-sample intervals [l_a, u_a], [l_b, u_b] of the estimates a and b at the same
//! confidence,
//!
//! ```text
//! low  = b − a − √((b − l_b)² + (u_a − a)²)
//! high = b − a + √((u_b − b)² + (a − l_a)²)
//! ```
//!
//! G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general
//! approach", Statistics in Medicine 27 (2008): "MOVER", the method of variance estimates
//! recovered. The method keeps what makes the one-sample intervals right at small counts (they are
//! skewed, and stop at what certainly exists). [`super::weighted()`] computes the one-sample
//! intervals.
//!
//! A one-sample interval does not know what may go unseen, but the other side does. Suppose one
//! side saw only large blocks, and the other side a small one, which stands for much more. The
//! first side may have missed such a small block. So the upper end of either side has room for one
//! more event of the larger of both sides' largest excess. A side without any sample hides what
//! that sample stands for per unit of hazard.
//!
//! Nearly all large blocks are seen, and a block is seen whole or not at all. If one side saw 5 of
//! 6 blocks, its estimate is a block lower, which no √ of distances covers. If more than α/2 of a
//! block is expected to be missed, the interval reaches at least as far as one block's weight.
//!
//! # Significance
//!
//! p is the α at which the interval of confidence 1 − α just excludes 0. For plain counts it is
//! close to the exact conditional binomial test, also far out in the tails (30 against 0: 4·10⁻⁹
//! here, 2·10⁻⁹ exactly). A normal approximation is wrong here: for 5 against 0 it gives p = 0.025,
//! and the true p is 0.05.
//!
//! # Many stacks
//!
//! Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", J. R. Statist. Soc. B 57
//! (1995): of m sorted p the adjusted ones are min over j ≥ i of m·p_j/j. Stacks with an adjusted p
//! of at most 5 % are called significant. On average at most 5 % of these are not real. Intervals
//! are pointwise: of a hundred, five miss.

use super::{Confidence, Moments, weighted};

/// Smallest p that is distinguished from 0.
pub const SMALLEST_P: f64 = 1e-12;

/// Steps of the search for p; it takes about 8.
const MAX_SEARCH_STEPS: usize = 60;

/// Relative error of sums over samples: a difference of one block equals the block's weight to this
/// precision.
const ROUNDING: f64 = 1e-9;

/// One side of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The moments of its samples.
    pub moments: Moments,
    /// Mean bytes between the samples, the largest that was active.
    pub interval_bytes: f64,
    /// Most bytes or objects that go unseen per unit of hazard ([`super::Reference::most_unseen`]).
    /// It gives the upper end if neither side has a sample.
    pub unseen: f64,
    /// Factor on the numbers of the side: 1, or 1/seconds for a rate. Positive.
    pub scale: f64,
}

/// A difference b − a. `low ≤ value ≤ high`; an end is infinite where a side has no interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The estimate of a.
    pub a: f64,
    /// The estimate of b.
    pub b: f64,
    /// b − a.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Confidence of this one interval.
    pub confidence: Confidence,
    /// Two-sided p of "there is no difference", [`SMALLEST_P`] … 1.
    pub p: f64,
}

/// The difference `b` − `a` of independent samples.
pub fn difference(a: &Side, b: &Side, confidence: Confidence) -> Difference {
    let (a, b) = (a.with_room_of(b), b.with_room_of(a));
    let ([of_a, of_b], [low, high]) = bounds(&a, &b, confidence);
    let value = of_b - of_a;
    Difference { a: of_a, b: of_b, value, low, high, confidence, p: p(&a, &b, value) }
}

/// The ends of [`difference`] without its p, which takes most of the time.
pub(super) fn ends_of_difference(a: &Side, b: &Side, confidence: Confidence) -> [f64; 2] {
    bounds(&a.with_room_of(b), &b.with_room_of(a), confidence).1
}

/// Both estimates, and the ends of their difference.
fn bounds(a: &Side, b: &Side, confidence: Confidence) -> ([f64; 2], [f64; 2]) {
    let ends = [a.ends(confidence), b.ends(confidence)];
    let [low, high] = reach(&ends);
    let value = ends[1].value - ends[0].value;
    ([ends[0].value, ends[1].value], [value - low, value + high])
}

/// An estimate, and how far its interval reaches in both directions.
#[derive(Clone, Copy)]
struct Ends {
    value: f64,
    down: f64,
    up: f64,
    /// The contribution of one more sample, if it is not too unlikely that one was missed.
    one_missed: f64,
}

impl Side {
    fn ends(&self, confidence: Confidence) -> Ends {
        let of = weighted(&self.moments, self.unseen, confidence);
        let Moments { sum, own, largest, largest_inclusion, .. } = self.moments;
        let weight = largest / (1.0 - largest_inclusion);
        let one_missed = match (sum - own) / weight > confidence.alpha() / 2.0 {
            true => weight * (1.0 + ROUNDING),
            false => 0.0,
        };
        let scaled = [of.value, of.value - of.low, of.high - of.value, one_missed];
        let [value, down, up, one_missed] = scaled.map(|of| of * self.scale);
        Ends { value, down, up, one_missed }
    }

    /// The side with room for a sample like the largest of `other`, taken at the rate of this side.
    fn with_room_of(&self, other: &Side) -> Side {
        let mut side = *self;
        let (excess, inclusion) = at_our_rate(self, other);
        let ours = &mut side.moments;
        if ours.samples == 0 || ours.sum <= 0.0 {
            // An excess x/π·(1 − π) hides x per hazard −ln(1 − π).
            let per_hazard = match inclusion {
                0.0 => excess,
                _ => excess * inclusion / (1.0 - inclusion) / -(-inclusion).ln_1p(),
            };
            if per_hazard > 0.0 && per_hazard.is_finite() {
                side.unseen = per_hazard;
            }
        } else if excess > ours.largest && ours.variance.is_finite() {
            (ours.largest, ours.largest_inclusion) = (excess, inclusion);
        }
        side
    }
}

/// Excess w(1 − π) and π of the other side's largest sample, at our rate: 1 − π is e^(−s/R).
fn at_our_rate(ours: &Side, other: &Side) -> (f64, f64) {
    let (excess, inclusion) = (other.moments.largest, other.moments.largest_inclusion);
    let ratio = other.interval_bytes / ours.interval_bytes;
    if !(ratio > 0.0 && ratio.is_finite()) || inclusion >= 1.0 {
        return (0.0, 1.0);
    }
    if inclusion <= 0.0 {
        return (excess / ratio, 0.0);
    }
    let own = excess * inclusion / (1.0 - inclusion);
    let ln_missed = (-inclusion).ln_1p() * ratio;
    let inclusion = -ln_missed.exp_m1();
    (own / inclusion * (1.0 - inclusion), inclusion)
}

/// How far the interval of b − a reaches down and up.
fn reach([a, b]: &[Ends; 2]) -> [f64; 2] {
    [b.down.hypot(a.up).max(a.one_missed), b.up.hypot(a.down).max(b.one_missed)]
}

/// The α at which the interval just excludes 0.
fn p(a: &Side, b: &Side, value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 1.0;
    }
    // How far beyond 0 the interval reaches; falls as α grows.
    let beyond = |ln_alpha: f64| -> f64 {
        let Ok(confidence) = Confidence::new(-ln_alpha.exp_m1()) else { return f64::NAN };
        let [low, high] = reach(&[a.ends(confidence), b.ends(confidence)]);
        if value > 0.0 { low - value } else { high + value }
    };
    let smallest = SMALLEST_P.ln();
    let mut right = (-1e-9f64).ln_1p();
    let mut at_right = beyond(right);
    if at_right.is_nan() || at_right >= 0.0 {
        return 1.0;
    }
    // Most p are large: search outwards in steps that double.
    let mut left = -0.5;
    let mut at_left = beyond(left);
    while at_left <= 0.0 {
        if left <= smallest {
            return SMALLEST_P;
        }
        (right, at_right) = (left, at_left);
        left = (2.0 * left).max(smallest);
        at_left = beyond(left);
    }
    if !at_left.is_finite() {
        return 1.0;
    }
    // Regula falsi with the Illinois rule: the end that stays counts half.
    for _ in 0..MAX_SEARCH_STEPS {
        let middle = right - at_right * (right - left) / (at_right - at_left);
        let at_middle = beyond(middle);
        if at_middle > 0.0 {
            (left, at_left) = (middle, at_middle);
            at_right *= 0.5;
        } else {
            (right, at_right) = (middle, at_middle);
            at_left *= 0.5;
        }
        if right - left < 1e-5 || at_middle == 0.0 {
            break;
        }
    }
    right.exp()
}

/// Adjusted p of Benjamini and Hochberg, in the order of `p`. Entries of at most q are significant
/// at q.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|x, y| p[*y].total_cmp(&p[*x]));
    let (mut adjusted, mut least) = (vec![1.0; p.len()], 1.0f64);
    for (place, index) in order.iter().enumerate() {
        let rank = (p.len() - place) as f64;
        least = least.min(p[*index] * p.len() as f64 / rank);
        adjusted[*index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(samples: u64, weight: f64, inclusion: f64) -> Side {
        let mut moments = Moments::default();
        moments.add_samples(samples, weight * inclusion, inclusion);
        let interval_bytes = 512.0 * 1024.0;
        Side { moments, interval_bytes, unseen: interval_bytes, scale: 1.0 }
    }

    /// Small blocks: plain Poisson counts.
    fn poisson(samples: u64) -> Side {
        counted(samples, 524_320.0, 64.0 / 524_320.0)
    }

    fn between(a: &Side, b: &Side) -> Difference {
        difference(a, b, Confidence::DEFAULT)
    }

    #[test]
    fn counts_have_the_p_of_the_conditional_binomial_test() {
        // Twice the smaller tail of a binomial with ½.
        for (a, b, exact) in [
            (0, 5, 0.0625f64),
            (0, 10, 1.95e-3),
            (0, 30, 1.9e-9),
            (1, 10, 0.0117),
            (10, 30, 2.2e-3),
            (100, 160, 2.2e-4),
        ] {
            let got = between(&poisson(a), &poisson(b));
            let back = between(&poisson(b), &poisson(a));
            assert!((got.p / exact).ln().abs() < 0.9, "{a} {b}: {} {exact}", got.p);
            assert!((got.p / back.p - 1.0).abs() < 1e-4 && got.value == -back.value);
            assert!((got.low + back.high).abs() < 1e-6 && (got.high + back.low).abs() < 1e-6);
        }
    }

    #[test]
    fn differences_are_significant_if_their_interval_excludes_0() {
        for (a, b) in [(3, 9), (2, 10), (20, 40), (7, 7), (0, 6)] {
            let of = between(&poisson(a), &poisson(b));
            assert_eq!(of.p < 0.05, of.low > 0.0, "{of:?}");
            assert!(of.low <= of.value && of.value <= of.high);
        }
        assert_eq!(between(&poisson(7), &poisson(7)).p, 1.0);
    }

    #[test]
    fn differences_of_certain_totals_are_exact() {
        let of = between(&counted(5, 1e7, 1.0), &counted(6, 1e7, 1.0));
        assert_eq!((of.value, of.low, of.high, of.p), (1e7, 1e7, 1e7, SMALLEST_P));
        assert_eq!(between(&counted(5, 1e7, 1.0), &counted(5, 1e7, 1.0)).p, 1.0);
    }

    #[test]
    fn one_missed_block_is_not_significant() {
        // Blocks at two intervals: 13 % are missed each; 8 of 8 against 6 of 8 happens.
        let seen = |samples| counted(samples, 1_212_693.0, 0.8647);
        let of = between(&seen(8), &seen(6));
        assert!(of.p > 0.1, "{of:?}");
    }

    #[test]
    fn rare_samples_on_one_side_are_not_significant() {
        // Objects: two samples of 16 bytes stand for 65,536, besides 50 large ones on both sides.
        let mut rare = counted(50, 1.2, 1.0 / 1.2);
        let large = rare;
        rare.moments.add_samples(2, 1.0, 1.0 / 32_768.0);
        let of = between(&large, &rare);
        assert!(of.p > 0.1, "{of:?}");
    }

    #[test]
    fn differences_of_rates_scale_with_the_duration() {
        let (mut a, mut b) = (poisson(40), poisson(10));
        let whole = between(&a, &b);
        (a.scale, b.scale) = (0.25, 0.25);
        let quarter = between(&a, &b);
        assert!((quarter.value / whole.value - 0.25).abs() < 1e-12);
        assert!((quarter.p / whole.p - 1.0).abs() < 1e-5);
        // Four times the amount in four times the time is the same rate.
        b.scale = 1.0;
        assert_eq!((between(&a, &b).value, between(&a, &b).p), (0.0, 1.0));
    }

    #[test]
    fn a_difference_without_an_interval_is_not_significant() {
        let mut stride = poisson(50);
        stride.moments.variance = f64::INFINITY;
        let of = between(&stride, &poisson(5));
        assert_eq!((of.p, of.low), (1.0, f64::NEG_INFINITY));
    }

    #[test]
    fn adjusted_p_values_are_those_of_benjamini_and_hochberg() {
        // R's p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05, 0.9), "BH"), out of order.
        let adjusted = benjamini_hochberg(&[0.9, 0.03, 0.01, 0.05, 0.02, 0.04]);
        let expected = [0.9, 0.06, 0.06, 0.06, 0.06, 0.06];
        for (got, expected) in adjusted.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{adjusted:?}");
        }
        let adjusted = benjamini_hochberg(&[0.0001, 0.4, 0.019, 0.0095, 0.0201]);
        for (got, expected) in adjusted.iter().zip([0.0005, 0.4, 0.025125, 0.02375, 0.025125]) {
            assert!((got - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(benjamini_hochberg(&[]).is_empty());
    }
}
