//! The capacity for what was not seen: size classes of which a row has no sample.
//!
//! Plainly: a class without a sample may still have passed unseen, up to what its rate lets pass.
//! All classes share one budget of hazard. If N₁ objects of one class *and* N₂ of another leave no
//! sample, the probability of that follows from the sum of both hazards. So the budget goes first
//! to the classes that hide most per unit of hazard.
//!
//! # Derivation
//!
//! In a class that hides u objects (or bytes) per unit of hazard, x go unseen with probability
//! e^(−x/u). Let x_i ≤ m_i, where m_i is the class's exact total minus what other rows own. The
//! most that goes unseen with probability e^(−h) or more is the solution of a fractional knapsack.
//! Its solution: fill the classes in falling order of u until the budget h is spent,
//!
//! ```text
//! K(h) = max Σx_i   subject to   Σ x_i/u_i ≤ h,  x_i ≤ m_i
//! ```
//!
//! concave and piecewise linear. The upper end of a row without any sample is K(ln(2/α)). For a row
//! with samples, Fay and Feuer's interval (see [`mod@super::weighted`]) adds one more event of the
//! largest weight, w_m. The event is a variable w_m·E, E exponential with mean 1, of mean w_m and
//! variance w_m². With caps that event is K(E), whose moments are sums over the pieces:
//!
//! ```text
//! E[K] = ∫ K′(e)·e^(−e) de       E[K²] = 2 ∫ K(e)·K′(e)·e^(−e) de
//! ```

/// What a class may hide.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    /// u: the most that goes unseen per unit of hazard; may be infinite.
    per_hazard: f64,
    /// m: the most that exists; may be infinite.
    most: f64,
}

/// Classes that may hide something.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UnseenCapacity {
    /// The classes in falling order of `per_hazard`.
    pieces: Vec<Piece>,
}

/// Mean and variance of the additional event of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NextEvent {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

impl UnseenCapacity {
    /// Capacity of one class that hides `per_hazard` per unit of hazard, without an end.
    pub(super) fn of(per_hazard: f64) -> UnseenCapacity {
        let mut capacity = UnseenCapacity::default();
        capacity.add(per_hazard, f64::INFINITY);
        capacity
    }

    /// Adds a class. Numbers that are not positive, or NaN, hide nothing.
    pub(super) fn add(&mut self, per_hazard: f64, most: f64) {
        if per_hazard > 0.0 && most > 0.0 {
            let at = self.pieces.partition_point(|piece| piece.per_hazard >= per_hazard);
            self.pieces.insert(at, Piece { per_hazard, most });
        }
    }

    /// Whether nothing can hide.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Everything that can hide: K(∞).
    pub(super) fn most(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.most).sum()
    }

    /// K(`budget`).
    pub(super) fn at(&self, budget: f64) -> f64 {
        let (mut left, mut hidden) = (budget, 0.0);
        for piece in &self.pieces {
            let need = piece.most / piece.per_hazard; // NaN if both are infinite
            if need <= left {
                hidden += piece.most;
                left -= need;
            } else {
                return hidden + piece.per_hazard * left;
            }
        }
        hidden
    }

    /// Mean and variance of K(E). Once everything that hides more than `excess` is hidden, one more
    /// event like the largest seen sample follows: of weight w = `excess`/(1 − `inclusion`), mean
    /// w(1 − π) and variance w²(1 − π).
    pub(super) fn next_event(&self, excess: f64, inclusion: f64) -> NextEvent {
        // `reached` is e^(−e) at the beginning of a piece, `hidden` is K(e).
        let (mut reached, mut hidden) = (1.0, 0.0);
        let (mut mean, mut square) = (0.0, 0.0);
        for piece in self.pieces.iter().take_while(|piece| piece.per_hazard > excess) {
            let (slope, most) = (piece.per_hazard, piece.most);
            if slope == f64::INFINITY {
                // Hidden at no cost of hazard.
                mean += most;
                square += most * (2.0 * hidden + most);
                hidden += most;
                continue;
            }
            let length = most / slope;
            let end = reached * (-length).exp();
            let inside = if end > 0.0 { end * (1.0 + length) } else { 0.0 };
            mean += slope * (reached - end);
            square += 2.0 * slope * (hidden * (reached - end) + slope * (reached - inside));
            hidden += most;
            reached = end;
            if reached == 0.0 {
                break;
            }
        }
        let mut variance = 0.0;
        if excess > 0.0 && inclusion < 1.0 && reached > 0.0 {
            mean += excess * reached;
            square += 2.0 * excess * reached * (hidden + excess);
            variance = reached * excess * (excess / (1.0 - inclusion) - excess);
        }
        NextEvent { mean, variance: variance + (square - mean * mean).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capacity(pieces: &[(f64, f64)]) -> UnseenCapacity {
        let mut capacity = UnseenCapacity::default();
        pieces.iter().for_each(|(per_hazard, most)| capacity.add(*per_hazard, *most));
        capacity
    }

    #[test]
    fn the_heaviest_class_is_filled_first() {
        let capacity = capacity(&[(10.0, 1e9), (1000.0, 2000.0), (100.0, f64::INFINITY)]);
        assert_eq!([0.0, 1.0, 2.0, 3.0].map(|h| capacity.at(h)), [0.0, 1000.0, 2000.0, 2100.0]);
        assert_eq!(UnseenCapacity::default().at(3.0), 0.0);
        assert_eq!(UnseenCapacity::of(7.0).at(3.0), 21.0);
    }

    #[test]
    fn never_sampled_classes_fill_their_capacity() {
        let capped = capacity(&[(f64::INFINITY, 50.0), (2.0, f64::INFINITY)]);
        assert_eq!(capped.at(3.0), 56.0);
        assert_eq!(UnseenCapacity::of(f64::INFINITY).at(1.0), f64::INFINITY);
        let event = capped.next_event(0.0, 1.0);
        assert!(
            (event.mean - 52.0).abs() < 1e-9 && (event.variance - 4.0).abs() < 1e-9,
            "{event:?}"
        );
    }

    #[test]
    fn a_slot_without_classes_is_one_more_largest_sample() {
        // w = 10, π = ¼: w(1−π) and w²(1−π).
        let event = UnseenCapacity::default().next_event(7.5, 0.25);
        assert!(
            (event.mean - 7.5).abs() < 1e-12 && (event.variance - 75.0).abs() < 1e-9,
            "{event:?}"
        );
        assert_eq!(capacity(&[(7.0, 100.0)]).next_event(7.5, 0.25), event);
        let nothing = UnseenCapacity::default().next_event(0.0, 1.0);
        assert_eq!(nothing, NextEvent { mean: 0.0, variance: 0.0 });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// The closed form against the integral.
        #[test]
        fn moments_are_those_of_the_knapsack(
            pieces in proptest::collection::vec((0.1f64..100.0, 0.1f64..300.0), 0..6), last in 0.001f64..0.1,
        ) {
            let capacity = capacity(&pieces);
            let mut with_last = capacity.clone();
            with_last.add(last, f64::INFINITY);
            let event = capacity.next_event(last, 0.0);
            let (steps, mut mean, mut square) = (100_000, 0.0, 0.0);
            for step in 0..steps {
                let hidden = with_last.at(-((f64::from(step) + 0.5) / f64::from(steps)).ln());
                mean += hidden / f64::from(steps);
                square += hidden * hidden / f64::from(steps);
            }
            prop_assert!((event.mean / mean - 1.0).abs() < 1e-3, "{event:?} {mean}");
            let variance = square - mean * mean;
            prop_assert!((event.variance / variance - 1.0).abs() < 1e-2, "{event:?} {variance}");
        }
    }
}
