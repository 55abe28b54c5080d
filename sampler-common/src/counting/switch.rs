//! The rule of the scalable counter: how much an event adds to a count of a given size.
//!
//! Plainly: up to 2^k every event adds itself. Above 2^k an event is rounded to a whole number of
//! quanta, at random and without bias. A quantum is 2 up to 2^(k+1), 4 up to 2^(k+2), and so on. So
//! a quantum is always about the same small share of the count. An event that is rounded to 0
//! writes nothing.
//!
//! # The rule
//!
//! With the value v that the worker has read, 2^L ≤ v < 2^(L+1):
//!
//! ```text
//! q = 1 for L < k, else 2^(L − k + 1)      (at most the cap)
//! n = m·q + r, 0 ≤ r < q
//! add m·q, and q more with probability r/q
//! ```
//!
//! For single events (n = 1, so m = 0, r = 1) it is the published rule: q with probability 1/q. For
//! bytes, n at a time, it is randomized rounding of n to the grid of quanta. A multiple of q is
//! added unchanged.
//!
//! # It is unbiased
//!
//! For any v that the worker has read, the expected addition is m·q + q·r/q = n. So the expectation
//! of the sum is the sum of the amounts, as long as no addition is lost. This expectation holds
//! also if v is old by the time of the addition. No addition is lost, since it is one atomic
//! operation.
//!
//! # Its variance
//!
//! The variance of one addition is q²·(r/q)(1 − r/q) = r(q − r), at most n·q and at most q²/4; for
//! a single event q − 1. Additions are independent given what was read before, hence uncorrelated.
//! So the variance of the sum is the sum of their expected variances. With q ≤ 2v/2^k, and with
//! E v = N_i the amounts before the i-th,
//!
//! ```text
//! Var ≤ Σ n_i·q_i ≤ (2/2^k)·Σ n_i·N_i ≤ N²/2^k
//! ```
//!
//! for any sequence of amounts: the relative standard deviation never exceeds 2^(−k/2), 1.1 % at
//! k = 13. A value that was read earlier is smaller, since the count never falls: its quantum is
//! smaller too, and the bound still holds.
//!
//! For single events the law is known more closely. The value climbs a fixed ladder, each rung q
//! above the last. At a rung of quantum q it waits for a geometric number of events, of mean q and
//! variance q(q − 1). So the sum of q(q − 1) over the rungs below v
//!
//! ```text
//! S(v) = Σ q(q − 1) = Σ over octaves of (their part below v)·(q − 1)
//! ```
//!
//! is the variance of the number of events that it takes to reach v, and an unbiased estimate of
//! the variance of the value ([`super::spread`]). √S(v)/v grows from 0 at 2^k to at most
//! 2^(−k/2)·√(3/4), reached a third into each octave of a large count. The maximum is 0.957 % at
//! k = 13, so 90 % of all counts lie within 1.6 %. (The published figure is 2 %.)
//!
//! # The cap
//!
//! With a largest quantum c the variance of N single events grows no faster than N·c, and the
//! relative error falls as √(c/N).
//!
//! # Saturation
//!
//! At [`SATURATED`] nothing is added any more. An amount counts for at most [`MAX_AMOUNT`], so even
//! 80 workers that have read the last value below cannot wrap the count.

/// The largest count, 2^63: it means "at least".
pub const SATURATED: u64 = 1 << 63;

/// The most that one addition counts for, 2^56.
pub const MAX_AMOUNT: u64 = 1 << 56;

/// Where a count becomes approximate, and how coarse it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Binary logarithm of the switch-over, k.
    log2: u32,
    /// Largest quantum minus 1.
    mask: u64,
}

impl Switch {
    /// Least binary logarithm of a switch-over.
    pub const MIN_LOG2: u32 = 8;
    /// Largest binary logarithm of a switch-over.
    pub const MAX_LOG2: u32 = 16;
    /// 2^13 without a cap: 90 % of counts within 1.6 %.
    pub const DEFAULT: Switch = Switch { log2: 13, mask: u64::MAX >> 1 };

    /// A switch that is approximate from 2^`log2` on; `None` unless `log2` is 8 … 16.
    pub const fn at(log2: u32) -> Option<Switch> {
        if log2 < Switch::MIN_LOG2 || log2 > Switch::MAX_LOG2 {
            return None;
        }
        Some(Switch { log2, ..Switch::DEFAULT })
    }

    /// The same switch with no quantum above 2^`log2` (2^62 at most): no event becomes rarer than
    /// the cap's probability 2^(−`log2`).
    #[must_use]
    pub const fn capped(self, log2: u32) -> Switch {
        Switch { log2: self.log2, mask: (1 << if log2 < 62 { log2 } else { 62 }) - 1 }
    }

    /// Binary logarithm of the switch-over.
    pub const fn log2(self) -> u32 {
        self.log2
    }

    /// The quantum of a count of `value`: a power of two, 1 below the switch-over; 0 if the count
    /// is saturated.
    #[inline(always)]
    pub const fn quantum(self, value: u64) -> u64 {
        if value >= SATURATED {
            return 0;
        }
        // The highest bit of v/2^k is bit L − k; with all bits below set it is q − 1. No logarithm:
        // BPF has no instruction for it. With a constant cap the compiler omits the higher shifts.
        let above = value >> self.log2;
        let mut mask = if above < self.mask { above } else { self.mask };
        mask |= mask >> 1;
        mask |= mask >> 2;
        mask |= mask >> 4;
        mask |= mask >> 8;
        mask |= mask >> 16;
        mask |= mask >> 32;
        mask.wrapping_add(1)
    }

    /// `amount` as a multiple of `quantum` (a power of two). It is rounded up for the share of all
    /// `random` numbers that makes the mean equal `amount`.
    ///
    /// Only the lower bits of `random` are used, as many as the quantum has.
    #[inline(always)]
    pub const fn step(quantum: u64, amount: u64, random: u64) -> u64 {
        let amount = Switch::bounded(amount);
        let mask = quantum.wrapping_sub(1);
        let rest = amount & mask;
        let whole = amount.wrapping_sub(rest);
        if random & mask < rest { whole.wrapping_add(quantum) } else { whole }
    }

    /// `amount`, at most [`MAX_AMOUNT`].
    #[inline(always)]
    pub const fn bounded(amount: u64) -> u64 {
        if amount < MAX_AMOUNT { amount } else { MAX_AMOUNT }
    }

    /// A count as readers see it: at most [`SATURATED`].
    #[inline(always)]
    pub const fn shown(value: u64) -> u64 {
        if value < SATURATED { value } else { SATURATED }
    }
}

// Both halves of the bound under "Saturation".
const _: () =
    assert!((SATURATED - 1) as u128 + 80 * 3 * (MAX_AMOUNT / 2) as u128 <= u64::MAX as u128);
const _: () = assert!(1u64 << (62 - Switch::MIN_LOG2 + 1) <= MAX_AMOUNT / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quanta_double_with_the_count() {
        for log2 in Switch::MIN_LOG2..=Switch::MAX_LOG2 {
            let switch = Switch::at(log2).unwrap();
            assert_eq!(switch.quantum(0), 1);
            assert_eq!(switch.quantum((1 << log2) - 1), 1);
            for octave in log2..63 {
                let quantum = 1 << (octave - log2 + 1);
                assert_eq!(switch.quantum(1 << octave), quantum);
                assert_eq!(switch.quantum((1 << octave) * 2 - 1), quantum);
                assert_eq!(switch.capped(3).quantum(1 << octave), quantum.min(8));
            }
            assert_eq!(switch.quantum(SATURATED), 0);
            assert_eq!(switch.quantum(u64::MAX), 0);
        }
        assert_eq!(Switch::at(7), None);
        assert_eq!(Switch::at(17), None);
        assert_eq!(Switch::at(13), Some(Switch::DEFAULT));
    }

    /// Over all random numbers the mean is the amount and the variance r(q − r): counted exactly,
    /// not estimated.
    #[test]
    fn rounding_is_exactly_unbiased() {
        for quantum in [1u64, 2, 4, 32, 256] {
            for amount in (0..3 * quantum + 2).chain([1 << 40, (1 << 40) + 77]) {
                let steps: Vec<u64> =
                    (0..quantum).map(|random| Switch::step(quantum, amount, random)).collect();
                assert_eq!(steps.iter().sum::<u64>(), quantum * amount);
                let squares: u64 = steps.iter().map(|step| step.abs_diff(amount).pow(2)).sum();
                let rest = amount % quantum;
                assert_eq!(squares, quantum * rest * (quantum - rest));
                assert!(steps.iter().all(|step| step % quantum == 0));
            }
        }
    }
}
