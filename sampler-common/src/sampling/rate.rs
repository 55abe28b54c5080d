//! Sampling rates: hazard per byte in fixed point.
//!
//! Plainly: a rate says how much of the countdown one byte uses up. With a mean interval of R bytes
//! between samples, each byte is sampled with probability p = 1/R, independently of all others. So
//! s bytes hold no sample with probability (1 − p)^s = e^(−λs), λ = −ln(1 − p). λ is the hazard per
//! byte. Hazards add where probabilities multiply, so the countdown is in units of hazard.
//!
//! Source of the geometric form 1 − (1 − p)^s: "Randomized Allocation Sampling", design document of
//! the .NET runtime. jemalloc's and tcmalloc's 1 − e^(−s/R) is its limit for large R.

/// Hazard 1.0 in raw units: hazards are Q48 (16 integer bits above, sign included).
pub const HAZARD_ONE: u64 = 1 << 48;

/// A hazard above every draw: −ln 2⁻⁶⁴ = 44.4 < 64. A call that is charged with it is always
/// sampled.
pub const HAZARD_CERTAIN: u64 = 64 * HAZARD_ONE;

/// The lower 32 bits of a number.
const LOWER_HALF: u64 = 0xFFFF_FFFF;

/// The largest interval, bytes.
pub const MAX_INTERVAL_BYTES: u64 = 1 << 32;

/// λ per byte, λ = −ln(1 − p), as the kernel charges it: raw Q48, at most [`HAZARD_CERTAIN`].
///
/// A sample's inclusion probability is computed from the raw rate that it was charged with, so
/// rounding the rate biases nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Rate(u64);

impl Rate {
    /// Every allocation is sampled (interval 1).
    pub const ALWAYS: Rate = Rate(HAZARD_CERTAIN);
    /// Nothing is sampled.
    pub const NEVER: Rate = Rate(0);

    /// The rate of raw units; larger values mean [`Rate::ALWAYS`].
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Rate {
        if raw > HAZARD_CERTAIN { Rate::ALWAYS } else { Rate(raw) }
    }

    /// The raw units.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Hazard of a request of `size` bytes (0 is sampled as one byte): λ·s, at most
    /// [`HAZARD_CERTAIN`].
    ///
    /// No 128-bit arithmetic and no division: it runs in the eBPF program on every allocation.
    #[inline(always)]
    pub const fn charge(self, size: u64) -> u64 {
        let bytes = if size == 0 { 1 } else { size };
        let rate_high = self.0 >> 32;
        let bytes_high = bytes >> 32;
        // The product of the lower halves; the whole product below 4 GiB at intervals from 64 KiB
        // up.
        let low = (self.0 & LOWER_HALF).wrapping_mul(bytes & LOWER_HALF);
        if rate_high | bytes_high == 0 {
            return if low > HAZARD_CERTAIN { HAZARD_CERTAIN } else { low };
        }
        if rate_high != 0 && bytes_high != 0 {
            return HAZARD_CERTAIN; // at least 2^64
        }
        // One of the two products is 0, so the sum fits in 64 bits. The sum counts in units of
        // 2^32.
        let cross = rate_high
            .wrapping_mul(bytes & LOWER_HALF)
            .wrapping_add((self.0 & LOWER_HALF).wrapping_mul(bytes_high));
        if cross >= HAZARD_CERTAIN >> 32 || low >= HAZARD_CERTAIN {
            return HAZARD_CERTAIN;
        }
        let hazard = (cross << 32).wrapping_add(low); // below 2^55
        if hazard > HAZARD_CERTAIN { HAZARD_CERTAIN } else { hazard }
    }

    /// The rate of [`MAX_INTERVAL_BYTES`]: −ln(1 − 2⁻³²) = 2⁻³² to within 2⁻⁶⁵.
    pub const LOWEST: Rate = Rate(HAZARD_ONE / MAX_INTERVAL_BYTES);

    /// ln 2, the rate of interval 2, rounded to nearest.
    const HALF: Rate = Rate(0xB172_17F7_D1CF);

    /// λ halved `times` times (back-pressure, thinning and limits), never below [`Rate::LOWEST`].
    ///
    /// λ is above ln 2 only close to "always", where half of λ would still sample every byte but
    /// one in 10¹⁴. So the first step from there goes to ln 2, interval 2. A rate that is already
    /// lower than [`Rate::LOWEST`], such as [`Rate::NEVER`], stays.
    #[inline(always)]
    pub const fn halved_times(self, times: u32) -> Rate {
        if times == 0 || self.0 <= Self::LOWEST.0 {
            return self;
        }
        let first = 2 * Self::HALF.0;
        let from = if self.0 > first { first } else { self.0 };
        let halved = if times < u64::BITS { from >> times } else { 0 };
        if halved < Self::LOWEST.0 { Self::LOWEST } else { Rate(halved) }
    }
}

#[cfg(feature = "std")]
impl Rate {
    /// The rate of a mean interval of `interval_bytes` (1 … 2^32): λ = −ln(1 − 1/R), rounded to
    /// nearest.
    ///
    /// Interval 1 is [`Rate::ALWAYS`]. `None` outside the domain.
    pub fn from_interval(interval_bytes: u64) -> Option<Rate> {
        match interval_bytes {
            0 => None,
            1 => Some(Rate::ALWAYS),
            2..=MAX_INTERVAL_BYTES => {
                let hazard = -(-1.0 / interval_bytes as f64).ln_1p();
                Some(Rate(((hazard * HAZARD_ONE as f64).round() as u64).max(1)))
            }
            _ => None,
        }
    }

    /// The rate of a trial that hits with `probability` in (0, 1]: λ = −ln(1 − p), rounded to
    /// nearest.
    ///
    /// A probability of 1 or more is [`Rate::ALWAYS`]. `None` outside the domain.
    pub fn from_probability(probability: f64) -> Option<Rate> {
        if probability >= 1.0 {
            return Some(Rate::ALWAYS);
        }
        if probability.is_nan() || probability <= 0.0 {
            return None;
        }
        let hazard = -(-probability).ln_1p();
        Some(Rate::from_raw(((hazard * HAZARD_ONE as f64).round() as u64).max(1)))
    }

    /// Half of λ: [`Rate::halved_times`] once.
    pub fn halved(self) -> Rate {
        self.halved_times(1)
    }

    /// Mean bytes between samples, 1/p with p = 1 − e^(−λ); infinite for [`Rate::NEVER`].
    pub fn interval_bytes(self) -> f64 {
        1.0 / self.inclusion(1)
    }

    /// Probability that a request of `size` bytes is sampled: π = 1 − e^(−λ·max(s, 1)).
    ///
    /// Exactly 1 if [`Rate::charge`] is [`HAZARD_CERTAIN`], 0 for [`Rate::NEVER`]. The probability
    /// is computed from what the kernel charged, rounding and saturation included.
    pub fn inclusion(self, size: u64) -> f64 {
        match self.charge(size) {
            HAZARD_CERTAIN => 1.0,
            hazard => -(-(hazard as f64) / HAZARD_ONE as f64).exp_m1(),
        }
    }
}
