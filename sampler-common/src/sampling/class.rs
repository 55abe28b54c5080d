//! Size classes of the exact totals, and the finer buckets of lost samples.

use super::bits::floor_log2;
use crate::limits::CLASSES;

/// Every bucket of [`size_bucket`] is below this.
pub const SIZE_BUCKETS: u32 = 2048;

/// Size class of a request of `size` bytes: 0 for 0; 1 for 1 … 16; `c` for (2^(c+2), 2^(c+3)]; the
/// last class, 31, for everything above 2^33.
#[inline(always)]
pub const fn class(size: u64) -> usize {
    // Nearly all requests are small. A look-up is several times shorter than a logarithm without an
    // instruction for it, and this function runs in the eBPF program on every allocation.
    if size <= SMALL_BYTES {
        return SMALL[(size.wrapping_add(15) >> 4) as usize] as usize;
    }
    class_by_logarithm(size)
}

/// Sizes up to this one are looked up.
const SMALL_BYTES: u64 = 1024;

/// Class of each 16 bytes: entry i has the class of the sizes 16·(i − 1) + 1 … 16·i.
static SMALL: [u8; SMALL_BYTES as usize / 16 + 1] = small();

/// The values of [`SMALL`]. Compile time only.
const fn small() -> [u8; SMALL_BYTES as usize / 16 + 1] {
    let mut table = [0; SMALL_BYTES as usize / 16 + 1];
    let mut index = 0;
    while index < table.len() {
        table[index] = class_by_logarithm(index as u64 * 16) as u8;
        index += 1;
    }
    table
}

#[inline(always)]
const fn class_by_logarithm(size: u64) -> usize {
    if size == 0 {
        return 0;
    }
    // Requests of class c have ⌊log₂(size − 1)⌋ = c + 2. The | 2 lifts 1 … 8 into class 1.
    let quarters = (size.wrapping_sub(1) >> 2) | 2;
    if quarters >> 32 != 0 {
        return CLASSES - 1;
    }
    floor_log2(quarters) as usize
}

/// The smallest and largest size of class `class`, inclusive. `class` < [`CLASSES`].
pub const fn class_bounds(class: usize) -> (u64, u64) {
    assert!(class < CLASSES);
    match class {
        0 => (0, 0),
        1 => (1, 16),
        31 => ((1 << 33) + 1, u64::MAX),
        c => ((1 << (c + 2)) + 1, 1 << (c + 3)),
    }
}

/// Bucket of relative width 1/32 of a requested size: `size` itself below 32, then 32 buckets for
/// each power of two. Less than [`SIZE_BUCKETS`].
///
/// The layout of HdrHistogram (Tene) with 32 sub-buckets.
#[inline(always)]
pub const fn size_bucket(size: u64) -> u32 {
    if size < 32 {
        return size as u32;
    }
    // The shift is at most 58. The mask proves to the compiler and the verifier that it is below
    // 64.
    let shift = floor_log2(size).wrapping_sub(5) & 63;
    // (size >> shift) is 32 … 63. Each shift has 32 buckets of its own, the first after the 32
    // sizes below 32.
    (shift << 5).wrapping_add((size >> shift) as u32)
}

/// The smallest and largest size of bucket `bucket`, inclusive; `None` for a number that
/// [`size_bucket`] never returns.
pub const fn size_bucket_bounds(bucket: u32) -> Option<(u64, u64)> {
    if bucket < 32 {
        return Some((bucket as u64, bucket as u64));
    }
    let shift = bucket / 32 - 1;
    if shift > 58 {
        return None;
    }
    let low = ((32 + bucket % 32) as u64) << shift;
    Some((low, low + ((1 << shift) - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_class_edges_have_the_right_class() {
        for (size, expected) in
            [(0, 0), (1, 1), (8, 1), (16, 1), (17, 2), (32, 2), (33, 3), (64, 3)]
        {
            assert_eq!(class(size), expected, "size {size}");
        }
        assert_eq!(class(1 << 33), 30);
        assert_eq!(class((1 << 33) + 1), 31);
        assert_eq!(class(1 << 34), 31);
        assert_eq!(class((1 << 34) + 1), 31);
        assert_eq!(class(u64::MAX), 31);
    }

    #[test]
    fn looked_up_classes_equal_computed_classes() {
        for size in
            (0..4 * SMALL_BYTES).chain((14..20).flat_map(|log2| (1 << log2) - 2..(1 << log2) + 3))
        {
            assert_eq!(class(size), class_by_logarithm(size), "size {size}");
        }
    }

    #[test]
    fn classes_cover_every_size_once() {
        let mut next = 0;
        for index in 0..CLASSES {
            let (low, high) = class_bounds(index);
            assert_eq!(low, next);
            assert_eq!((class(low), class(high)), (index, index));
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last class ends at the largest size");
    }

    #[test]
    fn buckets_cover_every_size_once() {
        let (mut next, mut bucket) = (0u64, 0);
        while let Some((low, high)) = size_bucket_bounds(bucket) {
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((size_bucket(low), size_bucket(high)), (bucket, bucket));
            assert!((high - low) as f64 <= low as f64 / 32.0);
            next = high.wrapping_add(1);
            bucket += 1;
        }
        assert_eq!(next, 0, "the last bucket ends at the largest size");
        assert!(bucket <= SIZE_BUCKETS);
    }
}
