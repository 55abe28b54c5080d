//! Whether an address may be that of a sampled block: asked by every `free`, and answered by one load.
//!
//! Counters of a byte, indexed by the address folded. Neighbouring addresses have neighbouring counters, so that the filter takes
//! no more of the processor's cache than the heap that is in use. There are two filters in one array, a small one and a large one, and every
//! sampled block is counted in both: which of them is asked may change at any time. The filter of n counters lies at n … 2n.
//!
//! A counter that has reached its end stays there: whoever is counted by it costs a look into the table from then on.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Counters of the small filter, which is asked while there are few sampled blocks.
const SMALL: usize = 1 << 16;
/// Counters of the large one.
const LARGE: usize = 1 << 19;
/// Sampled blocks from which the large one is asked: the small one would answer "may be" for 3 % of all others.
const MANY: usize = 2048;
/// Below so many the small one is asked again.
const FEW: usize = 1024;
/// The end of a counter.
const FULL: u8 = u8::MAX;

const _: () = assert!(SMALL.is_power_of_two() && LARGE.is_power_of_two() && SMALL < LARGE);

/// The two filters. All zero is empty.
pub struct Filter {
    /// The bits by which the large filter's mask is longer, while it is the one that is asked: zero pages are free, and a first value
    /// that is not zero would put all the counters into the file.
    wide: AtomicUsize,
    blocks: AtomicUsize,
    counters: [AtomicU8; 2 * LARGE],
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::new()
    }
}

impl Filter {
    /// An empty one.
    pub const fn new() -> Filter {
        Filter {
            wide: AtomicUsize::new(0),
            blocks: AtomicUsize::new(0),
            counters: [const { AtomicU8::new(0) }; 2 * LARGE],
        }
    }

    /// Whether a sampled block may be at `address`: never no where one is.
    #[inline(always)]
    pub fn may_hold(&self, address: usize) -> bool {
        self.counter(address, (SMALL - 1) | self.wide.load(Relaxed)).load(Relaxed) != 0
    }

    /// Counts a block.
    pub fn add(&self, address: usize) {
        for size in [SMALL, LARGE] {
            let more = |count: u8| (count != FULL).then(|| count + 1);
            let _ = self.counter(address, size - 1).fetch_update(Relaxed, Relaxed, more);
        }
        if self.blocks.fetch_add(1, Relaxed) >= MANY {
            self.wide.store(LARGE - SMALL, Relaxed);
        }
    }

    /// Takes back a block that was counted.
    pub fn remove(&self, address: usize) {
        for size in [SMALL, LARGE] {
            let less = |count: u8| (count != FULL && count != 0).then(|| count - 1);
            let _ = self.counter(address, size - 1).fetch_update(Relaxed, Relaxed, less);
        }
        if self.blocks.fetch_sub(1, Relaxed) <= FEW {
            self.wide.store(0, Relaxed);
        }
    }

    #[inline(always)]
    fn counter(&self, address: usize, mask: usize) -> &AtomicU8 {
        let folded = (address >> 4) ^ (address >> 19);
        // Twice masked, so that the compiler sees that it is inside as well.
        &self.counters[((folded & mask) + mask + 1) & (2 * LARGE - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Box<Filter> {
        Box::new(Filter::new())
    }

    #[test]
    fn what_is_counted_is_found() {
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
    fn few_others_are_taken_for_sampled_ones() {
        let filter = filter();
        // One of 8192 blocks of 64 bytes, and pages of large ones.
        for n in 0..10_000 {
            filter.add(0x5555_0000_0000 + n * 64 * 8191);
        }
        let others = (0..100_000).map(|n| 0x7f00_1234_0000 + n * 16 * 1031);
        let taken = others.filter(|address| filter.may_hold(*address)).count();
        assert!(taken < 4_000, "{taken} of 100,000");
    }

    #[test]
    fn a_full_counter_stays() {
        let filter = filter();
        (0..300).for_each(|_| filter.add(64));
        (0..300).for_each(|_| filter.remove(64));
        assert!(filter.may_hold(64));
    }
}
