//! The countdown: which call is sampled.
//!
//! Plainly: a number counts down by the hazard of every call. The call that takes the number to
//! zero or below is sampled. If no countdown is running, the next call draws one and is charged to
//! it like any other call. A cell that starts at zero, a cell that was just crossed and a cell that
//! was left negative are the same state, "not running". All three leave this state the same way.
//!
//! # Why the countdown is unbiased, also when handlers preempt each other
//!
//! The draw is geometric in raw units ([`mod@super::draw`]), hence memoryless. If a countdown has
//! not been crossed yet, what is left of it is distributed like a fresh draw, whatever was charged
//! before. So before every trial, given all outcomes so far, one of two things holds:
//!
//! - the countdown is running and what is left is distributed like a fresh draw, or
//! - the countdown is not running, and the trial makes an independent draw.
//!
//! Either way the call is sampled with probability P(draw ≤ hazard) = 1 − e^(−hazard),
//! independently of all outcomes before. Each trial stores at most once, and the stored value keeps
//! this invariant. It is either 0, "not running", or draw − hazard. Given that draw − hazard is
//! positive, it is distributed like a fresh draw. A trial that was suspended before it stores may
//! replace a countdown that another trial has started since. It then replaces a number by an
//! independent one of the same distribution. *When* it does so does not depend on the replaced
//! number, so nothing changes for later trials.
//!
//! Exactly one trial crosses a running countdown, because the subtraction is atomic: this trial
//! alone sees the last positive value. A trial that finds no countdown running leaves the cell at 0
//! or above. So the cell falls below −[`HAZARD_CERTAIN`] only while several trials of one CPU are
//! suspended between their two operations. To wrap the cell, 512 trials would have to be suspended
//! at once. The value after a wrap is no possible countdown (a countdown is at most
//! [`HAZARD_CERTAIN`]), so even then the next trial draws a new one. (The fast path of the
//! preloaded library bounds hazards in another way: `sampler-preload/src/thread.rs`.)

use super::draw::draw;
use super::rate::HAZARD_CERTAIN;

/// A memory cell with the atomic operations that both the kernel and the tests have. The tests
/// implement it with a scheduler that explores interleavings.
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

    /// A [`draw`]. The kernel's generator calls a separate function for it, which the eBPF verifier
    /// checks once.
    #[inline(always)]
    fn distance(&mut self) -> u64 {
        draw(self.next())
    }

    /// The same value. The kernel's generator hides the origin of the value. The eBPF verifier then
    /// checks the code that follows once, not once for each way to it.
    #[inline(always)]
    fn opaque(&mut self, value: u64) -> u64 {
        value
    }
}

/// The result of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Not sampled; nearly every trial.
    Miss,
    /// Sampled; `rest` is the hazard left before the call, from which the sampled byte follows.
    Hit {
        /// Hazard between the start of the request and the sampled byte, in (0, hazard].
        rest: u64,
    },
}

/// Charges `hazard` (at most [`HAZARD_CERTAIN`], see [`super::Rate::charge`]) to the countdown and
/// says whether this call is sampled. A hazard of 0 is never sampled and leaves the countdown
/// untouched.
///
/// The cell needs no particular start value; 0 is right.
#[inline(always)]
pub fn trial<C: Cell, R: Random>(countdown: &C, hazard: u64, random: &mut R) -> Trial {
    if hazard == 0 {
        return Trial::Miss;
    }
    let left = countdown.fetch_sub(hazard as i64) as u64;
    if keeps_running(left, hazard) {
        return Trial::Miss;
    }
    // One unsigned comparison for "positive and a possible draw".
    if left.wrapping_sub(1) < HAZARD_CERTAIN {
        return Trial::Hit { rest: left };
    }
    // No countdown is running: this call starts one, as if it had run before the call.
    let fresh = random.distance();
    if fresh > hazard {
        countdown.swap(fresh.wrapping_sub(hazard) as i64);
        Trial::Miss
    } else {
        countdown.swap(0);
        Trial::Hit { rest: fresh }
    }
}

/// Whether a countdown that stood at `left` before `hazard` was subtracted was running and still
/// is. Such a trial is a [`Trial::Miss`] without further work, as nearly every trial is.
#[inline(always)]
pub const fn keeps_running(left: u64, hazard: u64) -> bool {
    left > hazard && left <= HAZARD_CERTAIN
}

/// 0-based offset of the sampled byte: ⌊(rest − 1)/λ⌋, below max(size, 1).
///
/// `rest` is in 1 … hazard, as [`trial`] returned it. `rate_raw` is the rate that was charged.
#[inline(always)]
pub const fn offset(rest: u64, rate_raw: u64, size: u64) -> u64 {
    if rate_raw == 0 || size == 0 {
        return 0;
    }
    let offset = rest.wrapping_sub(1) / rate_raw;
    // What `trial` returns is within the bound; the check is for values that crossed the kernel
    // boundary.
    if offset < size { offset } else { size.wrapping_sub(1) }
}
