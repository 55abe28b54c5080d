//! Size classes of the exact totals, and the finer buckets of lost samples.
use crate::limits::CLASSES;

/// Size class of a request of `size` bytes: 0 for 0; 1 for 1 … 16; `c` for (2^(c+2), 2^(c+3)];
/// the last one, 31, for everything above 2^33.
#[inline(always)]
pub const fn class(size: u64) -> usize {
    let _ = size;
    todo!()
}

/// The smallest and largest size of class `class`, inclusive. `class` < [`CLASSES`].
pub const fn class_bounds(class: usize) -> (u64, u64) {
    assert!(class < CLASSES);
    todo!()
}

/// Bucket of relative width 1/32 of a requested size: `size` itself below 32, then 32 a power of two.
/// Less than 2048.
#[inline(always)]
pub const fn size_bucket(size: u64) -> u32 {
    let _ = size;
    todo!()
}
