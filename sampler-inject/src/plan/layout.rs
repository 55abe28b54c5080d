//! What of the target's address space is free, and will not be needed by what is there.

use std::ops::Range;

/// Bytes of a page on x86-64.
pub const PAGE_BYTES: u64 = 4096;
/// The kernel keeps so much free between the end of a growing stack and the next mapping (`stack_guard_gap`).
const STACK_GUARD_BYTES: u64 = 1 << 20;
/// The kernel keeps at least so much for the main thread's stack, whatever its limit (`MIN_GAP` of `mmap_base`).
const MIN_STACK_BYTES: u64 = 128 << 20;
/// More than that is kept for no stack: an unlimited one may be larger than all that is free.
const MAX_STACK_BYTES: u64 = 1 << 30;
/// Kept for `brk` behind the heap. glibc maps memory elsewhere if the heap cannot grow.
pub const HEAP_GROWTH_BYTES: u64 = 1 << 30;

/// The mappings of the target.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Addresses in ascending order that are in use or kept.
    taken: Vec<Range<u64>>,
}

impl Layout {
    /// From the ranges of `/proc/PID/maps`. Of those, `stack` is the main thread's and `heap` ends where `brk` does; `stack_limit` is
    /// the soft `RLIMIT_STACK`.
    pub fn new(
        mapped: impl IntoIterator<Item = Range<u64>>,
        heap: Option<Range<u64>>,
        stack: Option<Range<u64>>,
        stack_limit: u64,
    ) -> Layout {
        let mut taken: Vec<Range<u64>> = mapped.into_iter().collect();
        if let Some(heap) = heap {
            taken.push(heap.start..heap.end.saturating_add(HEAP_GROWTH_BYTES));
        }
        if let Some(stack) = stack {
            let kept = stack_limit.clamp(MIN_STACK_BYTES, MAX_STACK_BYTES) + STACK_GUARD_BYTES;
            let lowest = stack.end.saturating_sub(kept).min(stack.start);
            taken.push(lowest..stack.end);
        }
        taken.sort_unstable_by_key(|range| range.start);
        Layout { taken: merged(taken) }
    }

    /// The same with another range in use.
    #[must_use]
    pub fn with(mut self, range: Range<u64>) -> Layout {
        self.taken.push(range);
        self.taken.sort_unstable_by_key(|range| range.start);
        Layout { taken: merged(self.taken) }
    }

    /// Ranges between the first and the last taken one that are free, in ascending order.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        self.taken.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// Whether nothing of the target lies in `range`, and nothing will grow into it.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        let behind = self.taken.partition_point(|taken| taken.end <= range.start);
        self.taken.get(behind).is_none_or(|taken| range.end <= taken.start)
    }
}

/// Ranges without overlaps, of ranges that are sorted by their start.
fn merged(sorted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
