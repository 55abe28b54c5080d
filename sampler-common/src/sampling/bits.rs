//! Binary logarithm without branches.

/// ⌊log₂ x⌋, 0 for x ≤ 1.
///
/// BPF has no instruction for `leading_zeros`, which expands to about 30 instructions without a
/// branch. A ladder of comparisons is no longer, but every branch doubles the paths that the
/// verifier follows.
#[inline(always)]
pub(super) const fn floor_log2(x: u64) -> u32 {
    63u32.wrapping_sub((x | 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_log2_is_the_floor_of_the_logarithm() {
        assert_eq!(floor_log2(0), 0);
        for shift in 0..64 {
            let power = 1u64 << shift;
            assert_eq!(floor_log2(power), shift);
            assert_eq!(floor_log2(power | (power - 1)), shift);
        }
    }
}
