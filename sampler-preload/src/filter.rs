//! The filter: tells whether an address may be that of a sampled block. Every `free` asks, and one
//! load answers.
//!
//! The filter has counters of one byte, each for 252 neighbouring bytes of the heap. So a cache
//! line has the counters of nearly 16 KiB of heap. A block is mistaken for a sampled one if it
//! shares 252 bytes with one. In a heap of which one block in 512 KiB is sampled, that is one part
//! in 2,080. By chance n/2¹⁸ of all other blocks are mistaken too, if n blocks are sampled.
//!
//! ```text
//! counter of an address a = ⌊65 a/2¹⁴⌋ mod 2¹⁸ = ⌊a/2⁸ + a/2¹⁴⌋ mod 2¹⁸
//! ```
//!
//! The index is the upper 18 of the 32 bits of a product. The second term is for heaps that begin
//! at multiples of 64 MiB, like those of threads: the counters of their first mebibytes are 4,096
//! apart.
//!
//! A counter that has reached its maximum stays there. Blocks of such a counter cost a table
//! look-up from then on.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Number of counters.
const COUNTERS: usize = 1 << (32 - SHIFT);
/// Factor of the lower half of an address.
pub(crate) const FACTOR: u32 = (1 << 6) + 1;
/// Lower bits of the product that are dropped.
pub(crate) const SHIFT: u32 = 14;
/// The maximum of a counter.
const FULL: u8 = u8::MAX;

/// The filter. All zero is empty.
#[repr(transparent)]
pub struct Filter {
    counters: [AtomicU8; COUNTERS],
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::new()
    }
}

impl Filter {
    /// An empty filter.
    pub const fn new() -> Filter {
        Filter { counters: [const { AtomicU8::new(0) }; COUNTERS] }
    }

    /// Whether a sampled block may be at `address`; always true if one is.
    #[inline(always)]
    pub fn may_hold(&self, address: usize) -> bool {
        self.counter(address).load(Relaxed) != 0
    }

    /// Counts a block.
    pub fn add(&self, address: usize) {
        let more = |count: u8| (count != FULL).then(|| count + 1);
        let _ = self.counter(address).fetch_update(Relaxed, Relaxed, more);
    }

    /// Removes a block that was counted.
    pub fn remove(&self, address: usize) {
        let less = |count: u8| (count != FULL && count != 0).then(|| count - 1);
        let _ = self.counter(address).fetch_update(Relaxed, Relaxed, less);
    }

    #[inline(always)]
    fn counter(&self, address: usize) -> &AtomicU8 {
        &self.counters[((address as u32).wrapping_mul(FACTOR) >> SHIFT) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Box<Filter> {
        Box::new(Filter::new())
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many additions to interpret")]
    fn added_addresses_are_found() {
        let filter = filter();
        let address = |n: usize| 0x5555_0000_0000 + n * 16 * 37;
        for n in 0..5000 {
            assert!(!filter.may_hold(0) || n > 0);
            filter.add(address(n));
            assert!((0..=n).step_by(97).all(|n| filter.may_hold(address(n))), "{n}");
        }
        for n in 0..5000 {
            filter.remove(address(n));
            assert!((n + 1..5000).step_by(97).all(|n| filter.may_hold(address(n))), "{n}");
        }
        assert!((0..5000).all(|n| !filter.may_hold(address(n))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many additions to interpret")]
    fn the_filter_has_few_false_positives() {
        let filter = filter();
        // One of 8191 blocks of 64 bytes is sampled.
        for n in 0..10_000 {
            filter.add(0x5555_0000_0000 + n * 64 * 8191);
        }
        let others = (0..100_000).map(|n| 0x7f00_1234_0000 + n * 16 * 1031);
        let taken = others.filter(|address| filter.may_hold(*address)).count();
        assert!(taken < 5_000, "{taken} of 100,000");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many additions to interpret")]
    fn heaps_of_threads_rarely_share_counters() {
        let filter = filter();
        // 128 heaps of a megabyte, with two sampled blocks in each.
        let heap = |number: usize| 0x7f00_0000_0000 + (number << 26);
        let place = |number: usize| number.wrapping_mul(0x9E37_79B9) % (1 << 20) / 16 * 16;
        for number in 0..256 {
            filter.add(heap(number / 2) + place(number));
        }
        let others = (0..100_000).map(|number| heap(number % 128) + place(7 * number + 3));
        let taken = others.filter(|address| filter.may_hold(*address)).count();
        // 256 of all counters; if all heaps shared 4,096 counters they would be 6 %.
        assert!(taken < 1_000, "{taken} of 100,000");
    }

    #[test]
    fn a_saturated_filter_counter_is_kept() {
        let filter = filter();
        (0..300).for_each(|_| filter.add(64));
        (0..300).for_each(|_| filter.remove(64));
        assert!(filter.may_hold(64));
    }
}
