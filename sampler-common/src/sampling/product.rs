//! `calloc`'s product, without the 128-bit multiplication that BPF does not have.

/// `count · size`, or `None` if the product does not fit: then `calloc` fails.
#[inline(always)]
pub const fn product(count: u64, size: u64) -> Option<u64> {
    let (large, small) = if count >= size { (count, size) } else { (size, count) };
    if small >> 32 != 0 {
        // Both are at least 2^32.
        return None;
    }
    // large·small = high·2^32 + low, both partial products below 2^64.
    let high = (large >> 32) * small;
    let low = (large & 0xffff_ffff) * small;
    if high >> 32 != 0 {
        return None;
    }
    let shifted = high << 32;
    let sum = shifted.wrapping_add(low);
    if sum < shifted { None } else { Some(sum) }
}

#[cfg(test)]
mod tests {
    use super::product;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_product_is_checked_multiplication(a: u64, b: u64, shift_a in 0u32..64, shift_b in 0u32..64) {
            let (a, b) = (a >> shift_a, b >> shift_b);
            prop_assert_eq!(product(a, b), a.checked_mul(b));
        }
    }

    #[test]
    fn overflowing_products_are_refused() {
        for (a, b) in [(0, u64::MAX), (1, u64::MAX), (1 << 32, 1 << 32), (1 << 32, (1 << 32) - 1)] {
            assert_eq!(product(a, b), a.checked_mul(b));
            assert_eq!(product(b, a), a.checked_mul(b));
        }
    }
}
