//! A rate, prepared for what nearly every request is.
//!
//! A sampler inside of a process has a nanosecond for a call, and everything that can be settled before should be. Where a rate is low enough for
//! requests of up to 256 KiB to be charged by one multiplication its word is the raw rate; of all others it is the negative, and 0 is none. So whether a
//! call goes the short way is seen by two comparisons: of the word with 0, and of the size with both its bounds.

use super::Rate;
use super::design::{USUAL_BYTES, USUAL_RATE};

/// A rate, prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Ready(i64);

impl Ready {
    /// Of a rate.
    pub const fn new(rate: Rate) -> Ready {
        let raw = rate.raw() as i64;
        Ready(if rate.raw() <= USUAL_RATE { raw } else { raw.wrapping_neg() })
    }

    /// From a word.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Ready {
        Ready(word as i64)
    }

    /// The word.
    pub const fn word(self) -> u64 {
        self.0 as u64
    }

    /// The rate.
    pub const fn rate(self) -> Rate {
        Rate::from_raw(self.0.unsigned_abs())
    }

    /// As [`Rate::charge`] for what nearly every request is; `None`: something else. An empty request counts as a byte, and is too rare for a
    /// comparison of its own.
    #[inline(always)]
    pub const fn charge(self, size: u64) -> Option<i64> {
        if size.wrapping_sub(1) >= USUAL_BYTES - 1 || self.0 <= 0 {
            return None;
        }
        Some(self.0.wrapping_mul(size as i64))
    }
}

/// Whether a countdown that stood at `left` before `hazard` was taken from it is still running, as [`super::outlives`] has it of one that has not
/// wrapped: that takes 512 trials of one thread that are suspended, each in the handler of a signal that interrupted the one before, between two
/// instructions.
#[inline(always)]
pub const fn runs_on(left: i64, hazard: i64) -> bool {
    left > hazard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::outlives;
    use crate::sampling::rate::HAZARD_CERTAIN;

    const SIZES: [u64; 9] =
        [0, 1, 63, 4096, (256 << 10) - 1, 256 << 10, 1 << 40, 1 << 63, u64::MAX];

    #[test]
    fn a_ready_charge_is_the_charge() {
        for interval in [1, 2, 4095, 4096, 4097, 1 << 16, 1 << 19, 1 << 32] {
            let rate = Rate::from_interval(interval).unwrap();
            let ready = Ready::new(rate);
            assert_eq!((ready.rate(), Ready::from_word(ready.word())), (rate, ready));
            for size in SIZES {
                let charge = ready.charge(size);
                assert!(charge.is_none_or(|hazard| hazard as u64 == rate.charge(size)));
                let is_usual = interval > 4096 && (1..256 << 10).contains(&size);
                assert_eq!(charge.is_some(), is_usual, "{interval} {size}");
            }
        }
        assert!(SIZES.iter().all(|size| Ready::new(Rate::NEVER).charge(*size).is_none()));
        assert_eq!(Ready::from_word(0).rate(), Rate::NEVER);
    }

    #[test]
    fn what_runs_on_outlives() {
        let certain = HAZARD_CERTAIN as i64;
        for left in [i64::MIN, -certain, -1, 0, 1, 2, 1000, certain - 1, certain] {
            for hazard in [1, 2, 999, 1000, 1001, certain - 1, certain] {
                let expected = outlives(left as u64, hazard as u64);
                assert_eq!(runs_on(left, hazard), expected, "{left} {hazard}");
            }
        }
    }
}
