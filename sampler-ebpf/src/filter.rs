//! Counters in front of the live set. One or two cache lines show for most frees that the block is
//! not in the live set.
//!
//! The counters have two levels. The front level is small enough to cost no cache miss, but is of
//! use only while few blocks are live. The size of the other level follows the bound of the live
//! set.
//! A counter holds how many live samples hash to it. A counter may be too high (an entry was
//! dropped elsewhere), which costs a look-up. It is never too low.
//! Samples that a process took by itself are not counted: the process itself reports which of its
//! blocks end ([`sampler_common::wire::LiveEntry::is_filtered`]).

use crate::{atomic, live, maps, settings};
use aya_ebpf::maps::Array;
use sampler_common::wire::{
    FILTER_FRONT_LIVE, FILTER_FRONT_SHIFT, FILTER_FULL, FILTER_LINE, filter_bit, filter_index,
    filter_lowered, filter_raised,
};

/// Attempts to change a word that other CPUs are changing.
const ATTEMPTS: u32 = 8;

/// The counters of one array element.
type Line = [u32; FILTER_LINE as usize / 8];

/// Whether a live sample may be at this address.
#[inline(always)]
pub fn may_hold(pointer: u64, slot: u32) -> bool {
    let (front, back) = (
        filter_index(pointer, slot, FILTER_FRONT_SHIFT),
        filter_index(pointer, slot, settings::filter_shift()),
    );
    (live::entries() > FILTER_FRONT_LIVE || counts(&maps::FILTER_FRONT, front))
        && counts(&maps::FILTER, back)
}

#[inline(always)]
fn counts(map: &Array<Line>, index: u64) -> bool {
    let Some(line) = line(map, index) else { return true };
    let byte = index as usize / 2 & (size_of::<Line>() - 1);
    // SAFETY: the index is masked to the line's bytes.
    let byte = unsafe { line.cast::<u8>().add(byte) };
    // SAFETY: as above; the read of a byte is never torn.
    let pair = u32::from(unsafe { core::ptr::read_volatile(byte) });
    pair >> ((index & 1) << 2) & FILTER_FULL != 0
}

#[inline(always)]
fn line(map: &Array<Line>, index: u64) -> Option<*mut Line> {
    map.get_ptr_mut((index / u64::from(FILTER_LINE)) as u32)
}

/// Counts a sample, before it enters the live set.
#[inline(never)]
pub fn enter(pointer: u64, slot: u32) {
    for_both(pointer, slot, |word, bit| {
        if !change(word, |old| filter_raised(old, bit)) {
            // The counter may be too high, never too low.
            atomic::or_u32(word, FILTER_FULL << bit);
        }
    });
}

/// Subtracts a sample, after it has left the live set.
#[inline(never)]
pub fn leave(pointer: u64, slot: u32) {
    for_both(pointer, slot, |word, bit| {
        let _ = change(word, |old| filter_lowered(old, bit));
    });
}

#[inline(always)]
fn for_both(pointer: u64, slot: u32, act: impl Fn(*mut u32, u32)) {
    let levels =
        [(&maps::FILTER_FRONT, FILTER_FRONT_SHIFT), (&maps::FILTER, settings::filter_shift())];
    for (map, shift) in levels {
        let index = filter_index(pointer, slot, shift);
        if let Some(line) = line(map, index) {
            let word = index / 8 & u64::from(FILTER_LINE / 8 - 1);
            // SAFETY: the index is masked to the line's words.
            act(unsafe { line.cast::<u32>().add(word as usize) }, filter_bit(index));
        }
    }
}

/// Changes a word atomically. Returns whether that succeeded within [`ATTEMPTS`].
#[inline(always)]
fn change(word: *mut u32, to: impl Fn(u32) -> u32) -> bool {
    for _ in 0..ATTEMPTS {
        // SAFETY: a word inside a map value.
        let old = unsafe { core::ptr::read_volatile(word) };
        let new = to(old);
        if new == old || atomic::exchange_u32(word, old, new) {
            return true;
        }
    }
    false
}
