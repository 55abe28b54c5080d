//! The countdown: which call is sampled.

/// A memory cell with the atomic operations that the kernel and the tests both have.
/// The tests implement it with a scheduler that explores interleavings.
pub trait Cell {
    /// Subtracts and returns the value before.
    fn fetch_sub(&self, amount: i64) -> i64;
    /// Stores and returns the value before.
    fn swap(&self, value: i64) -> i64;
}

/// A source of 64 random bits.
pub trait Random {
    /// The next 64 bits.
    fn next(&mut self) -> u64;
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

/// Charges `hazard` to the countdown and tells whether this call is sampled.
#[inline(always)]
pub fn trial<C: Cell, R: Random>(countdown: &C, hazard: u64, random: &mut R) -> Trial {
    let _ = (countdown, hazard, random);
    todo!()
}

/// 0-based offset of the sampled byte: ⌊(rest − 1)/λ⌋, below max(size, 1).
#[inline(always)]
pub const fn offset(rest: u64, rate_raw: u64, size: u64) -> u64 {
    let _ = (rest, rate_raw, size);
    todo!()
}
