//! The draw: an exponential variate by integers only.
//!
//! Plainly: a uniform number of 64 bits becomes its negative natural logarithm, which is the
//! distance (in hazard) to the next sampled byte.
//!
//! Let n = random + 1, so that U = n/2⁶⁴ is uniform on (0, 1]. With n = f·2^k, 1 ≤ f < 2,
//!
//! ```text
//! −ln U = (64 − k)·ln 2 − ln f
//! ```
//!
//! The upper eight fraction bits of f choose a short reciprocal r ≈ 1/f (17 bits, rounded up). Then
//! f·r = 1 + t with 0 ≤ t < 2⁻⁸ + 2⁻¹⁵ is one multiplication without rounding, and
//!
//! ```text
//! ln f = −ln r + ln(1 + t),   ln(1 + t) = t − t²/2 + t³/3 − t⁴/4 + t⁵/5 − t⁶/6
//! ```
//!
//! −ln r is the table (table-driven logarithm: Tang, ACM TOMS 16, 1990; with exact products as in
//! Gal's method). The series stops 2⁻⁵⁸ short. All products are of 32-bit halves: BPF has no
//! 64 × 64 → 128 multiplication.
//!
//! The result is rounded **up**: then P(draw ≤ h) = P(−ln U ≤ h) = 1 − e^(−h) for every whole h. So
//! the draw is exactly geometric in raw units, and never 0.

use super::bits::floor_log2;
use super::rate::HAZARD_CERTAIN;

/// Fraction bits of the computation; the largest distance, 44.4, still fits.
const FRACTION: u32 = 57;

/// ln 2 in Q64 (OEIS A002162).
const LN_2_Q64: u64 = 0xB172_17F7_D1CF_79AC;

/// −ln of [`reciprocal`] in Q57.
static MINUS_LN_RECIPROCAL: [u64; 256] = table();

/// ⌈2¹⁶/(1 + index/256)⌉, index ≤ 255.
#[inline(always)]
const fn reciprocal(index: u64) -> u64 {
    // BPF divides unsigned numbers; the divisor is 256 … 511.
    (1u64 << 24).wrapping_add(255).wrapping_add(index) / (256u64.wrapping_add(index))
}

/// The values of [`MINUS_LN_RECIPROCAL`]. Compile time only.
const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = minus_ln(reciprocal(index as u64));
        index += 1;
    }
    table
}

/// −ln(r/2¹⁶) in Q57 for 2¹⁵ < r ≤ 2¹⁶: ln 2 times the binary logarithm, whose bits come from
/// repeated squaring.
///
/// Truncations add up to less than 2⁻⁶⁰. Compile time only.
const fn minus_ln(r: u64) -> u64 {
    if r == 1 << 16 {
        return 0;
    }
    // x in [1, 2) as Q63; r/2¹⁶ = x/2.
    let mut x = (r as u128) << 48;
    let mut log2: u64 = 0; // Q62 of log₂ x
    let mut bit = 0;
    while bit < 62 {
        x = (x * x) >> 63;
        log2 <<= 1;
        if x >> 64 != 0 {
            x >>= 1;
            log2 |= 1;
        }
        bit += 1;
    }
    let minus_log2 = (1u128 << 62) - log2 as u128;
    // Q62 · Q64 = Q126, rounded to Q57.
    ((minus_log2 * LN_2_Q64 as u128 + (1 << 68)) >> 69) as u64
}

/// ln(1 + t) in Q57, for t in Q71 below 2⁻⁷.
#[inline(always)]
const fn ln_1p(t: u64) -> u64 {
    const THIRD: u64 = 0x5555_5555; // Q32
    const QUARTER: u64 = 0x4000_0000;
    const FIFTH: u64 = 0x3333_3333;
    const SIXTH: u64 = 0x2AAA_AAAA;

    let high = t >> 32; // Q39, 32 bits
    let low = t & 0xFFFF_FFFF;
    // t² in Q78: the square of the upper half and the cross term; the square of the lower half is
    // below 2⁻⁷⁸.
    let square = high.wrapping_mul(high).wrapping_add(high.wrapping_mul(low) >> 31);
    // t³ in Q54, 31 bits.
    let cube = (square >> 32).wrapping_mul(high) >> 31;
    // 1/3 − t/4 + t²/5 − t³/6 in Q32; every product is of 32-bit numbers and stays positive.
    let inner = FIFTH.wrapping_sub(high.wrapping_mul(SIXTH) >> 39);
    let inner = QUARTER.wrapping_sub(high.wrapping_mul(inner) >> 39);
    let inner = THIRD.wrapping_sub(high.wrapping_mul(inner) >> 39);
    let tail = cube.wrapping_mul(inner) >> 29;
    // t in Q57, minus t²/2, plus the tail.
    (t >> 14).wrapping_sub(square >> 22).wrapping_add(tail)
}

/// −ln U for U uniform on (0, 1], from 64 random bits; raw hazard units rounded up, from 1 to below
/// [`HAZARD_CERTAIN`].
#[inline(always)]
pub const fn draw(random: u64) -> u64 {
    let n = random.wrapping_add(1);
    if n == 0 {
        // U = 1: the distance 0 is rounded up like every other.
        return 1;
    }
    let k = floor_log2(n);
    let zeros = 63u32.wrapping_sub(k) & 63;
    let mantissa = n << zeros; // f in Q63
    let index = (mantissa >> 55) & 255;
    // f in Q55 times r in Q16 is Q71: 2⁷¹·(1 + t). The 1 falls off the upper end.
    let t = (mantissa >> 8).wrapping_mul(reciprocal(index));
    // (64 − k)·ln 2 in two pieces, since 7 + 64 bits do not fit.
    let halvings = (zeros as u64).wrapping_add(1);
    let whole = halvings
        .wrapping_mul(LN_2_Q64 >> 7)
        .wrapping_add(halvings.wrapping_mul(LN_2_Q64 & 127) >> 7);
    let distance =
        whole.wrapping_sub(MINUS_LN_RECIPROCAL[(index & 255) as usize]).wrapping_sub(ln_1p(t));
    // Close to U = 1 the difference of rounded terms may be just below 0.
    if (distance as i64) < 1 {
        return 1;
    }
    distance.wrapping_add((1 << (FRACTION - 48)) - 1) >> (FRACTION - 48)
}

// The compiler checks the largest draw: a request that is charged HAZARD_CERTAIN is always sampled.
const _: () = assert!(draw(0) < HAZARD_CERTAIN);
const _: () = assert!(draw(u64::MAX) == 1);

#[cfg(test)]
mod tests {
    use super::super::rate::HAZARD_ONE;
    use super::*;

    /// −ln U in raw units with f64, computed from the end of (0, 1] where f64 is exact.
    fn oracle(random: u64) -> f64 {
        let missing = u64::MAX - random;
        let distance = if missing < 1 << 62 {
            -(-(missing as f64) / 2f64.powi(64)).ln_1p()
        } else {
            -((random as f64 + 1.0) / 2f64.powi(64)).ln()
        };
        distance * HAZARD_ONE as f64
    }

    fn check(random: u64, worst: &mut f64) {
        let expected = oracle(random);
        let error = (draw(random) as i64 - expected.floor() as i64) as f64 - expected.fract();
        // The oracle is rounded to 53 bits, twice: 1 raw unit at the far end.
        let slack = 0.06 + expected * 2f64.powi(-53);
        assert!(
            error >= -slack && error <= 1.0 + slack,
            "draw({random}) is off by {error:.3} raw units"
        );
        *worst = worst.max(error.abs());
    }

    #[test]
    fn the_draw_rounds_the_logarithm_up() {
        let mut worst = 0.0;
        // Both tails and both sides of every table edge at every power of two.
        for near in 0..5000 {
            check(near, &mut worst);
            check(u64::MAX - near, &mut worst);
        }
        for shift in 0..64 {
            check((1u64 << shift).wrapping_sub(1), &mut worst);
            check(u64::MAX - (1u64 << shift), &mut worst);
            for edge in 256u64..512 {
                let n = if shift >= 8 { edge << (shift - 8) } else { edge >> (8 - shift) };
                for step in 0..4 {
                    check(n.wrapping_add(step).wrapping_sub(2), &mut worst);
                }
            }
        }
        // Densely in between.
        let mut random = 1u64;
        for _ in 0..400_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            check(random, &mut worst);
        }
        assert!(worst < 2.2, "worst error {worst} raw units of 2⁻⁴⁸");
    }

    #[test]
    fn the_draw_falls_as_the_random_number_grows() {
        let mut last = u64::MAX;
        for step in 0..200_000u64 {
            let now = draw(step * (u64::MAX / 200_000));
            assert!(now <= last);
            last = now;
        }
    }
}
