//! Binary logarithm by comparisons.

/// ⌊log₂ x⌋, 0 for x ≤ 1.
///
/// Six comparisons: `leading_zeros` has no instruction in BPF and expands to about 30.
#[inline(always)]
pub(super) const fn floor_log2(mut x: u64) -> u32 {
    let mut log = 0;
    if x >> 32 != 0 {
        x >>= 32;
        log = 32;
    }
    if x >> 16 != 0 {
        x >>= 16;
        log |= 16;
    }
    if x >> 8 != 0 {
        x >>= 8;
        log |= 8;
    }
    if x >> 4 != 0 {
        x >>= 4;
        log |= 4;
    }
    if x >> 2 != 0 {
        x >>= 2;
        log |= 2;
    }
    if x >> 1 != 0 {
        log |= 1;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_logarithm() {
        assert_eq!(floor_log2(0), 0);
        for shift in 0..64 {
            let power = 1u64 << shift;
            assert_eq!(floor_log2(power), shift);
            assert_eq!(floor_log2(power | (power - 1)), shift);
        }
    }
}
