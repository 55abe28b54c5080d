//! Sampling rates: hazard per byte in fixed point.

/// Hazard 1.0 in raw units: hazards are Q48 (16 integer bits above, sign included).
pub const HAZARD_ONE: u64 = 1 << 48;

/// No draw is larger: −ln 2⁻⁶⁴ = 44.4 < 64. A call charged with this much is always sampled.
pub const HAZARD_CERTAIN: u64 = 64 * HAZARD_ONE;

/// λ per byte, λ = −ln(1 − p), as the kernel charges it: raw Q48, at most [`HAZARD_CERTAIN`].
///
/// The raw number is the truth: a sample's inclusion probability is computed from the raw rate that
/// it was charged with, so rounding it biases nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Rate(u64);

impl Rate {
    /// Every allocation is sampled (interval 1).
    pub const ALWAYS: Rate = Rate(HAZARD_CERTAIN);
    /// Nothing is sampled.
    pub const NEVER: Rate = Rate(0);

    /// From raw units; larger values mean [`Rate::ALWAYS`].
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Rate {
        if raw > HAZARD_CERTAIN { Rate::ALWAYS } else { Rate(raw) }
    }

    /// Raw units.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Hazard of a request of `size` bytes (0 is sampled as one byte): λ·s, at most [`HAZARD_CERTAIN`].
    /// No 128-bit arithmetic, no division: it runs in the eBPF program on every allocation.
    #[inline(always)]
    pub const fn charge(self, size: u64) -> u64 {
        let _ = size;
        todo!()
    }
}

#[cfg(feature = "std")]
impl Rate {
    /// The rate of a mean interval of `interval_bytes` (1 … 2^32): λ = −ln(1 − 1/R); 1 is [`Rate::ALWAYS`].
    /// `None` outside the domain.
    pub fn from_interval(interval_bytes: u64) -> Option<Rate> {
        let _ = interval_bytes;
        todo!()
    }

    /// Half of λ (back-pressure and thinning), never below the rate of the largest interval.
    pub fn halved(self) -> Rate {
        todo!()
    }

    /// Mean bytes between samples, 1/p with p = 1 − e^(−λ).
    pub fn interval_bytes(self) -> f64 {
        todo!()
    }

    /// Probability that a request of `size` bytes is sampled: π = 1 − e^(−λ·max(s, 1)); exactly 1 where
    /// [`Rate::charge`] is [`HAZARD_CERTAIN`].
    pub fn inclusion(self, size: u64) -> f64 {
        let _ = size;
        todo!()
    }
}
