//! The free part of the target's address space: nothing is mapped there, and no heap or stack grows
//! into it.

use std::ops::Range;

/// Bytes of a page on x86-64.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes that the kernel keeps free between the end of a growing stack and the next mapping
/// (`stack_guard_gap`).
const STACK_GUARD_BYTES: u64 = 1 << 20;
/// Bytes that the kernel reserves at least for the main thread's stack, whatever its limit
/// (`MIN_GAP` of `mmap_base`).
const MIN_STACK_BYTES: u64 = 128 << 20;
/// Bytes that are reserved at most for a stack: an unlimited stack may be larger than all free
/// memory.
const MAX_STACK_BYTES: u64 = 1 << 30;
/// Bytes that are reserved for `brk` behind the heap, if possible and at least. glibc maps memory
/// elsewhere if the heap cannot grow. Functions of the program itself often have all their places
/// within 1 GiB above it.
pub const HEAP_GROWTH_BYTES: [u64; 2] = [1 << 30, 64 << 20];

/// The mappings of the target.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Ranges that are in use or reserved, in ascending order.
    taken: Vec<Range<u64>>,
}

impl Layout {
    /// Builds a layout from the ranges of `/proc/PID/maps`. `stack` is the main thread's stack, and
    /// `heap` includes the bytes that are reserved behind it.
    /// `stack_limit` is the soft `RLIMIT_STACK`.
    pub fn new(
        mapped: impl IntoIterator<Item = Range<u64>>,
        heap: Option<Range<u64>>,
        stack: Option<Range<u64>>,
        stack_limit: u64,
    ) -> Layout {
        let mut taken: Vec<Range<u64>> = mapped.into_iter().chain(heap).collect();
        if let Some(stack) = stack {
            let kept = stack_limit.clamp(MIN_STACK_BYTES, MAX_STACK_BYTES) + STACK_GUARD_BYTES;
            let lowest = stack.end.saturating_sub(kept).min(stack.start);
            taken.push(lowest..stack.end);
        }
        taken.sort_unstable_by_key(|range| range.start);
        Layout { taken: merged(taken) }
    }

    /// Marks another range as in use.
    #[must_use]
    pub fn with(mut self, range: Range<u64>) -> Layout {
        self.taken.push(range);
        self.taken.sort_unstable_by_key(|range| range.start);
        Layout { taken: merged(self.taken) }
    }

    /// Free ranges between the first and the last taken range, in ascending order.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        self.taken.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// Whether nothing of the target lies in `range`, and nothing will grow into it.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        let behind = self.taken.partition_point(|taken| taken.end <= range.start);
        self.taken.get(behind).is_none_or(|taken| range.end <= taken.start)
    }
}

/// Merges overlapping ranges, which must be sorted by their start.
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
