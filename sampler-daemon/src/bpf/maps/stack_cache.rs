//! The stacks that the kernel side knows (map `CACHED_STACKS` with its tags), written through
//! shared memory.

use crate::bpf::sys::SharedMemory;
use sampler_common::limits::{MAX_CACHED_SPANS, MAX_CACHED_STACKS, MAX_CACHED_WORDS};
use sampler_common::wire::{CACHE_SETS, CACHE_WAYS, CachedCall, CachedSpan, CachedStack, Space};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::SeqCst;

const PAGE: usize = 4096;
/// Number of places in one word.
const PACKED: usize = 4;
const _: () =
    assert!(MAX_CACHED_WORDS.is_multiple_of(PACKED) && MAX_CACHED_SPANS.is_multiple_of(2));

/// The maps `CACHED_STACKS` and `CACHED_TAGS`.
#[derive(Debug)]
pub struct StackCache {
    tags: SharedMemory,
    stacks: SharedMemory,
}

impl StackCache {
    pub(in crate::bpf) fn map(
        tags: BorrowedFd<'_>,
        stacks: BorrowedFd<'_>,
    ) -> io::Result<StackCache> {
        let map = |fd, bytes: usize| SharedMemory::map(fd, bytes.next_multiple_of(PAGE), 0, true);
        Ok(StackCache {
            tags: map(tags, (CACHE_SETS * CACHE_WAYS) as usize * 8)?,
            stacks: map(stacks, MAX_CACHED_STACKS as usize * size_of::<CachedStack>())?,
        })
    }

    /// Frees the entry at `index`.
    pub fn clear(&mut self, index: u32) {
        self.tags.atomic_u64(index as usize * 8).store(0, SeqCst);
        self.store(index, offset_of!(CachedStack, id), 0);
    }

    /// Writes a stack to the entry at `index`. A program that is comparing the old entry meanwhile
    /// sees that its id has gone.
    pub fn put(&mut self, index: u32, tag: u64, stack: &CachedStack) {
        self.clear(index);
        let CachedCall { space, function, ip, sp } = stack.call;
        for (field, value) in [
            (offset_of!(CachedStack, call.space), space.word()),
            (offset_of!(CachedStack, call.function), function),
            (offset_of!(CachedStack, call.ip), ip),
            (offset_of!(CachedStack, call.sp), sp),
            (offset_of!(CachedStack, bp), stack.bp),
            (offset_of!(CachedStack, bp_mask), stack.bp_mask),
            (offset_of!(CachedStack, spans), u64::from(stack.spans) | u64::from(stack.words) << 32),
        ] {
            self.store(index, field, value);
        }
        let (spans, words) = (stack.spans as usize, stack.words as usize);
        for (at, two) in stack.span.chunks(2).take(spans.div_ceil(2)).enumerate() {
            let one = |of: &CachedSpan| u64::from(of.first) | u64::from(of.words) << 16;
            let packed = two.iter().rev().fold(0, |word, of| word << 32 | one(of));
            self.store(index, offset_of!(CachedStack, span) + at * 8, packed);
        }
        for (at, value) in stack.values.iter().take(words).enumerate() {
            self.store(index, offset_of!(CachedStack, values) + at * 8, *value);
        }
        for (at, four) in stack.places.chunks(PACKED).take(words.div_ceil(PACKED)).enumerate() {
            let packed = four.iter().rev().fold(0, |word, place| word << 16 | u64::from(*place));
            self.store(index, offset_of!(CachedStack, places) + at * 8, packed);
        }
        self.store(index, offset_of!(CachedStack, id), stack.id);
        self.tags.atomic_u64(index as usize * 8).store(tag, SeqCst);
    }

    fn store(&self, index: u32, field: usize, value: u64) {
        let offset = index as usize * size_of::<CachedStack>() + field;
        self.stacks.atomic_u64(offset).store(value, SeqCst);
    }
}

// `spans` and `words` are stored as one word.
const _: () = assert!(offset_of!(CachedStack, words) == offset_of!(CachedStack, spans) + 4);
// The order that `Space::word` requires.
const _: () = assert!(offset_of!(Space, slot) == 0 && offset_of!(Space, generation) == 4);
