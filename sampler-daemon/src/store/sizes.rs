//! Requested sizes in cells, which are fine enough for queries of size ranges.
//!
//! A cell is the intersection of a size class and a bucket of 1/32 of a power of two. A class
//! begins one byte above a power of two, a bucket at it. So limits at the edges of classes are
//! exact, and other limits are exact to within 1/32.

use sampler_common::limits::CLASSES;
use sampler_common::sampling::{class, class_bounds, size_bucket, size_bucket_bounds};
use sampler_common::units::{exact_bytes, size_range};

/// A cell: sizes that rows do not distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeCell {
    /// The size class.
    pub class: u8,
    bucket: u16,
}

impl SizeCell {
    /// The cell of a request of `size` bytes.
    pub fn of(size: u64) -> SizeCell {
        SizeCell { class: class(size) as u8, bucket: size_bucket(size) as u16 }
    }

    /// The smallest and largest size of the cell, inclusive.
    pub fn bounds(self) -> (u64, u64) {
        let (low, high) = class_bounds(usize::from(self.class));
        let bucket = size_bucket_bounds(u32::from(self.bucket));
        let (from, to) = bucket.unwrap_or((low, high));
        (low.max(from), high.min(to))
    }
}

/// A range of sizes, made of whole cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// The smallest size.
    low: u64,
    /// The largest size.
    high: u64,
}

impl SizeLimits {
    /// Every size.
    pub const ALL: SizeLimits = SizeLimits { low: 0, high: u64::MAX };

    /// The cells that have a size from `smallest` to `largest`, inclusive.
    ///
    /// # Errors
    /// One line, if there is no such size.
    pub fn outward(smallest: Option<u64>, largest: Option<u64>) -> Result<SizeLimits, String> {
        let (low, high) = (smallest.unwrap_or(0), largest.unwrap_or(u64::MAX));
        if low > high {
            let [low, high] = [low, high].map(exact_bytes);
            return Err(format!("smallest size {low} is above the largest size {high}"));
        }
        Ok(SizeLimits { low: SizeCell::of(low).bounds().0, high: SizeCell::of(high).bounds().1 })
    }

    /// Whether the sizes of `cell` are within the limits: all of them, or none.
    pub fn has(&self, cell: SizeCell) -> bool {
        let (low, high) = cell.bounds();
        self.low <= low && high <= self.high
    }

    /// Whether the sizes of a class are all within the limits.
    pub fn has_class(&self, class: usize) -> bool {
        let (low, high) = class_bounds(class);
        self.low <= low && high <= self.high
    }

    /// Whether a class has any size within the limits.
    pub fn meets_class(&self, class: usize) -> bool {
        let (low, high) = class_bounds(class);
        low <= self.high && self.low <= high
    }

    /// Whether the limits cut no class in two. Exact totals are known only by class.
    pub fn cuts_no_class(&self) -> bool {
        (0..CLASSES).all(|class| self.has_class(class) || !self.meets_class(class))
    }

    /// The narrowest limits that contain these limits and cut no class.
    pub fn of_classes(&self) -> SizeLimits {
        SizeLimits { low: class_bounds(class(self.low)).0, high: class_bounds(class(self.high)).1 }
    }

    /// The smallest and the largest size, each `None` without such a limit.
    pub fn ends(&self) -> (Option<u64>, Option<u64>) {
        (Some(self.low).filter(|low| *low > 0), Some(self.high).filter(|high| *high < u64::MAX))
    }
}

impl std::fmt::Display for SizeLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = self.ends();
        f.write_str(&size_range(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(smallest: u64, largest: u64) -> SizeLimits {
        SizeLimits::outward(Some(smallest), Some(largest)).unwrap()
    }

    #[test]
    fn class_edges_are_exact() {
        for class in 0..CLASSES {
            let (low, high) = class_bounds(class);
            let limits = limits(low, high);
            assert_eq!((limits.low, limits.high), (low, high));
            assert!(limits.cuts_no_class() && limits.has_class(class));
            assert_eq!(limits.of_classes(), limits);
        }
    }

    #[test]
    fn other_limits_are_rounded_outward() {
        let of = limits(1000, 100_000);
        assert_eq!((of.low, of.high), (992, 100_351));
        assert!(!of.cuts_no_class());
        assert_eq!(of.of_classes(), limits(513, 131_072));
        assert_eq!(of.to_string(), "sizes from 992B to 100351B");
        assert_eq!(SizeLimits::outward(None, None), Ok(SizeLimits::ALL));
        assert!(SizeLimits::ALL.cuts_no_class());
        let error = SizeLimits::outward(Some(64), Some(63)).unwrap_err();
        assert_eq!(error, "smallest size 64B is above the largest size 63B");
    }

    proptest! {
        #[test]
        fn a_size_cell_is_wholly_inside_or_outside_limits(a in any::<u64>(), b in any::<u64>(), shifts in (0u32..64, 0u32..64, 0u32..64), size in any::<u64>()) {
            let (a, b, size) = (a >> shifts.0, b >> shifts.1, size >> shifts.2);
            let of = limits(a.min(b), a.max(b));
            let cell = SizeCell::of(size);
            let (low, high) = cell.bounds();
            prop_assert!(low <= size && size <= high);
            prop_assert_eq!((SizeCell::of(low), SizeCell::of(high)), (cell, cell));
            prop_assert_eq!(of.has(cell), of.low <= size && size <= of.high);
            prop_assert!(!(a.min(b) <= size && size <= a.max(b)) || of.has(cell));
        }
    }
}
