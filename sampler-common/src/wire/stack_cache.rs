//! Cached stacks: the kernel side compares a few words of a stack instead of copying the stack
//! again.
//!
//! The frames of a stack depend on a few of its words ([`CachedStack::values`]). The daemon puts
//! these words into the array `CACHED_STACKS` when it has unwound a copy of the stack. At a later
//! sample the kernel side compares the words. If all are equal, it sends [`CachedStack::id`] in
//! place of the stack.
//!
//! Reading user memory costs the kernel as much for one word as for forty. So words that are near
//! each other are read as one stretch ([`CachedSpan`]), together with the words between them. The
//! stretches are read one after the other into memory of the CPU and compared there.
//!
//! The array is a set-associative cache. The daemon alone writes it, through shared memory. The
//! tags of a set's entries are on one cache line, in a separate array: an unknown stack costs this
//! line and nothing else. A tag only says which entry to compare. A match counts only if
//! [`CachedStack::id`] is the same before and after the comparison. The daemon clears the id before
//! it changes an entry, writes the id last, and uses no id twice.

use super::Space;
use crate::limits::{
    CACHE_READ_WORDS, CACHED_SPAN_WORDS, MAX_CACHED_SPANS, MAX_CACHED_STACKS, MAX_CACHED_WORDS,
};
use core::mem::offset_of;

/// Entries of a set. Stacks with the same stack pointer and call are in one set.
pub const CACHE_WAYS: u32 = 8;

/// Number of sets.
pub const CACHE_SETS: u32 = MAX_CACHED_STACKS / CACHE_WAYS;

/// Entry of the array `CACHED_STACKS`: one cache line, then the stretches (one line), the values
/// and the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct CachedStack {
    /// Names the stack; 0 while the entry is vacant or being written.
    pub id: u64,
    /// The call, which is compared besides the words.
    pub call: CachedCall,
    /// Frame pointer after the return.
    pub bp: u64,
    /// Bits of `bp` that are compared: all or none.
    pub bp_mask: u64,
    /// Number of stretches that are read.
    pub spans: u32,
    /// Number of words that are compared.
    pub words: u32,
    /// The stretches that are read.
    pub span: [CachedSpan; MAX_CACHED_SPANS],
    /// Values of the compared words.
    pub values: [u64; MAX_CACHED_WORDS],
    /// Places of the compared words: words from the beginning of all that is read.
    pub places: [u16; MAX_CACHED_WORDS],
}

/// A stretch of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CachedSpan {
    /// Words above the stack pointer.
    pub first: u16,
    /// How many words, 1 to [`CACHED_SPAN_WORDS`].
    pub words: u16,
}

/// Scratch memory in which a CPU compares one call's stack; entry of `CACHE_SCRATCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CacheScratch {
    /// 1 while the CPU uses the entry.
    pub taken: u64,
    /// The call.
    pub call: CachedCall,
    /// Frame pointer after the return of the call.
    pub bp: u64,
    /// The words that were read. A stretch may extend past `CACHE_READ_WORDS` if it begins before.
    pub words: [u64; CACHE_READ_WORDS + CACHED_SPAN_WORDS],
}

/// The sampled call, with which the stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CachedCall {
    /// Address space.
    pub space: Space,
    /// Address of the probe.
    pub function: u64,
    /// Return address of the call.
    pub ip: u64,
    /// Stack pointer after the return.
    pub sp: u64,
}

impl Space {
    /// Slot and generation in one word, with the layout that they have in memory.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.slot as u64 | (self.generation as u64) << 32
    }
}

/// The tag of a call, never 0; `space` is a [`Space::word`].
#[inline(always)]
pub const fn cache_tag(space: u64, function: u64, ip: u64, sp: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let code = (ip ^ function.rotate_left(32)).wrapping_add(space).wrapping_mul(ODD);
    let all = (code ^ code >> 29 ^ sp).wrapping_mul(ODD);
    (all ^ all >> 32) | 1
}

/// The set that a tag belongs to.
#[inline(always)]
pub const fn cache_set(tag: u64) -> u32 {
    (tag >> 8) as u32 & (CACHE_SETS - 1)
}

const _: () = assert!(CACHE_SETS.is_power_of_two() && CACHE_SETS * CACHE_WAYS == MAX_CACHED_STACKS);
const _: () = assert!(size_of::<CachedCall>() == 32);
const _: () =
    assert!(size_of::<CachedStack>() == 64 + MAX_CACHED_SPANS * 4 + MAX_CACHED_WORDS * 10);
const _: () =
    assert!(offset_of!(CachedStack, span) == 64 && offset_of!(CachedStack, values) == 128);
// Both constants are used as masks, `CACHE_READ_WORDS` of places and `CACHED_SPAN_WORDS` of
// lengths.
const _: () =
    assert!(CACHE_READ_WORDS.is_power_of_two() && (CACHED_SPAN_WORDS + 1).is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_spread_over_the_sets() {
        // The calls of one program: few places, stack pointers 16 bytes apart.
        let mut counts = [0u32; CACHE_SETS as usize];
        for (space, function, ip) in [(3, 0x7f00_1234, 0x55_0000), (3, 0x7f00_1234, 0x55_0040)] {
            for depth in 0..1024 {
                let tag = cache_tag(space, function, ip, 0x7ffd_0000_0000 + depth * 16);
                assert_ne!(tag, 0);
                counts[cache_set(tag) as usize] += 1;
            }
        }
        // Four on average. With random tags one of 512 sets has more than fifteen with a chance of
        // 10^-2.
        assert!(counts.iter().all(|count| *count < 16), "{counts:?}");
    }
}
