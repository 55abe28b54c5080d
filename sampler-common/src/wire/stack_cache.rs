//! Stacks that are known: what the kernel side compares, instead of copying a stack once more.
//!
//! The frames of a stack depend on a few of its words ([`KnownStack::values`]). The daemon puts them into the array `KNOWN` when it has unwound a copy; at a
//! later sample the kernel side looks whether they are all the same, and then sends [`KnownStack::id`] in place of the stack.
//!
//! To read user memory costs the kernel as much for one word as for forty. So words that lie near each other are read as one stretch ([`KnownSpan`]), with
//! what lies between them, one stretch behind the other into memory of the CPU's own, and compared there.
//!
//! The array is a set-associative cache, written through shared memory, by the daemon alone. In front of it are the tags of each set's entries, one cache line, so that a
//! stack that is not known costs that line and nothing else. A tag only says where to look; an entry is believed if [`KnownStack::id`] is the same before and after it is
//! compared: the daemon clears it first when it changes an entry, writes it last, and gives no id twice.

use super::Space;
use crate::limits::{
    KNOWN_READ_WORDS, KNOWN_SPAN_WORDS, KNOWN_SPANS, KNOWN_WORDS, MAX_CACHED_STACKS,
};
use core::mem::offset_of;

/// Entries of a set. Stacks that have the stack pointer and the call in common are in one.
pub const KNOWN_WAYS: u32 = 8;

/// Sets.
pub const KNOWN_SETS: u32 = MAX_CACHED_STACKS / KNOWN_WAYS;

/// Entry of the array `KNOWN`: a cache line, one of stretches, those of the values and those of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct KnownStack {
    /// Names the stack; 0 while the entry is vacant or written.
    pub id: u64,
    /// What is compared besides words.
    pub call: KnownCall,
    /// Frame pointer after the return.
    pub bp: u64,
    /// Bits of it that matter: all or none.
    pub bp_mask: u64,
    /// How many stretches are read.
    pub spans: u32,
    /// How many words are compared.
    pub words: u32,
    /// Where they are read.
    pub span: [KnownSpan; KNOWN_SPANS],
    /// The words' values.
    pub values: [u64; KNOWN_WORDS],
    /// Their places: words from the beginning of all that is read.
    pub places: [u16; KNOWN_WORDS],
}

/// A stretch of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KnownSpan {
    /// Words above the stack pointer.
    pub first: u16,
    /// How many words, 1 to [`KNOWN_SPAN_WORDS`].
    pub words: u16,
}

/// Where a CPU looks for one call's stack: entry of `KNOWN_DESK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KnownDesk {
    /// 1 while it does.
    pub taken: u64,
    /// The call.
    pub call: KnownCall,
    /// The frame pointer after its return.
    pub bp: u64,
    /// What was read. Behind its end a stretch may go on that begins before it.
    pub words: [u64; KNOWN_READ_WORDS + KNOWN_SPAN_WORDS],
}

/// Where a stack ends: the call that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct KnownCall {
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
    /// Both parts in one word, as they lie in memory.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.slot as u64 | (self.generation as u64) << 32
    }
}

/// The tag of a call, never 0; `space` is a [`Space::word`].
#[inline(always)]
pub const fn known_tag(space: u64, function: u64, ip: u64, sp: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let code = (ip ^ function.rotate_left(32)).wrapping_add(space).wrapping_mul(ODD);
    let all = (code ^ code >> 29 ^ sp).wrapping_mul(ODD);
    (all ^ all >> 32) | 1
}

/// The set that a tag belongs to.
#[inline(always)]
pub const fn known_set(tag: u64) -> u32 {
    (tag >> 8) as u32 & (KNOWN_SETS - 1)
}

const _: () = assert!(KNOWN_SETS.is_power_of_two() && KNOWN_SETS * KNOWN_WAYS == MAX_CACHED_STACKS);
const _: () = assert!(size_of::<KnownCall>() == 32);
const _: () = assert!(size_of::<KnownStack>() == 64 + KNOWN_SPANS * 4 + KNOWN_WORDS * 10);
const _: () = assert!(offset_of!(KnownStack, span) == 64 && offset_of!(KnownStack, values) == 128);
// Both are masks, the one of places, the other of lengths.
const _: () =
    assert!(KNOWN_READ_WORDS.is_power_of_two() && (KNOWN_SPAN_WORDS + 1).is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_spread_over_the_sets() {
        // As one program's are: few places, stack pointers 16 bytes apart.
        let mut counts = [0u32; KNOWN_SETS as usize];
        for (space, function, ip) in [(3, 0x7f00_1234, 0x55_0000), (3, 0x7f00_1234, 0x55_0040)] {
            for depth in 0..1024 {
                let tag = known_tag(space, function, ip, 0x7ffd_0000_0000 + depth * 16);
                assert_ne!(tag, 0);
                counts[known_set(tag) as usize] += 1;
            }
        }
        // Four on average; more than fifteen in one of 512 have a chance of 10^-2 where all is random.
        assert!(counts.iter().all(|count| *count < 16), "{counts:?}");
    }
}
