//! The countdown: which call is sampled.
//!
//! Plainly: a number counts down by the hazard of every call; the call that takes it to zero or
//! below is sampled. Where no countdown is running, the next call draws one and is charged to it
//! like any other. That is the whole rule: a cell that starts at zero, one that was just crossed
//! and one that was left negative are the same state, "not running", and leave it the same way.
//!
//! # Why it is unbiased, also when handlers preempt each other
//!
//! The draw is geometric in raw units ([`mod@super::draw`]), hence memoryless: given that a countdown
//! has not been crossed yet, what is left of it is distributed like a fresh draw, whatever was
//! charged before. So before every trial, given all outcomes so far, one of two things holds:
//!
//! - the countdown is running and what is left is distributed like a fresh draw, or
//! - it is not running, and the trial makes an independent draw.
//!
//! Either way the call is sampled with probability P(draw ≤ hazard) = 1 − e^(−hazard), independently
//! of all outcomes before. Each trial stores at most once, and what it stores keeps this true:
//! draw − hazard given that it is positive is distributed like a fresh draw, and 0 is "not running".
//! A trial that was suspended before it stores may thereby replace a countdown that another trial
//! has started since. That replaces a number by an independent one of the same distribution, and
//! *when* it happens does not depend on the number replaced: nothing changes for later trials.
//!
//! Exactly one trial crosses a running countdown, because the subtraction is atomic: it alone sees
//! the last positive value. A trial that finds none running leaves it at 0 or above, so the cell
//! only falls below −[`HAZARD_CERTAIN`] while several trials of one CPU are suspended between
//! their two operations. To wrap, 512 of them would have to be at once; the value after a wrap is no possible
//! countdown either (those are at most [`HAZARD_CERTAIN`]), so even then the next trial starts afresh. (The preloaded library's short way
//! bounds hazards otherwise: `sampler-preload/src/thread.rs`.)

use super::draw::draw;
use super::rate::HAZARD_CERTAIN;

/// A memory cell with the atomic operations that the kernel and the tests both have.
/// The tests implement it with a scheduler that explores interleavings.
pub trait Cell {
    /// Subtracts (wrapping) and returns the value before.
    fn fetch_sub(&self, amount: i64) -> i64;
    /// Stores and returns the value before.
    fn swap(&self, value: i64) -> i64;
}

/// A source of 64 random bits.
pub trait Random {
    /// The next 64 bits.
    fn next(&mut self) -> u64;

    /// A [`draw`]. The kernel's generator has it in a function of its own, which the eBPF verifier looks at once.
    #[inline(always)]
    fn distance(&mut self) -> u64 {
        draw(self.next())
    }

    /// The same value. The kernel's generator hides where it came from, so that the eBPF verifier looks at what follows once and not once
    /// for each way to it.
    #[inline(always)]
    fn opaque(&mut self, value: u64) -> u64 {
        value
    }
}

/// The result of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Not sampled, almost always.
    Miss,
    /// Sampled; `rest` is the hazard left before the call, from which the sampled byte follows.
    Hit {
        /// Hazard between the start of the request and the sampled byte, in (0, hazard].
        rest: u64,
    },
}

/// Charges `hazard` (at most [`HAZARD_CERTAIN`], see [`super::Rate::charge`]) to the countdown and
/// says whether this call is sampled. A hazard of 0 is never sampled and touches nothing.
///
/// The cell needs no particular start value; 0 is right.
#[inline(always)]
pub fn trial<C: Cell, R: Random>(countdown: &C, hazard: u64, random: &mut R) -> Trial {
    if hazard == 0 {
        return Trial::Miss;
    }
    let left = countdown.fetch_sub(hazard as i64) as u64;
    if outlives(left, hazard) {
        return Trial::Miss;
    }
    // One unsigned comparison for "positive and a possible draw".
    if left.wrapping_sub(1) < HAZARD_CERTAIN {
        return Trial::Hit { rest: left };
    }
    // None is running: this call starts one, as if it had been there before the call.
    let fresh = random.distance();
    if fresh > hazard {
        countdown.swap(fresh.wrapping_sub(hazard) as i64);
        Trial::Miss
    } else {
        countdown.swap(0);
        Trial::Hit { rest: fresh }
    }
}

/// Whether a countdown that stood at `left` before `hazard` was taken from it was running and still is: a [`Trial::Miss`] that has
/// nothing more to do, as nearly every trial is.
#[inline(always)]
pub const fn outlives(left: u64, hazard: u64) -> bool {
    left > hazard && left <= HAZARD_CERTAIN
}

/// 0-based offset of the sampled byte: ⌊(rest − 1)/λ⌋, below max(size, 1).
///
/// `rest` in 1 … hazard as [`trial`] gave it, `rate_raw` the rate that was charged.
#[inline(always)]
pub const fn offset(rest: u64, rate_raw: u64, size: u64) -> u64 {
    if rate_raw == 0 || size == 0 {
        return 0;
    }
    let offset = rest.wrapping_sub(1) / rate_raw;
    // Holds by itself for what `trial` gives; the bound is for values that crossed the kernel boundary.
    if offset < size { offset } else { size.wrapping_sub(1) }
}
