//! Counters in front of the live set: one or two cache lines tell most frees that nothing is there.
//!
//! Two levels: the front one is small, so that it costs no cache miss, but of use only while few
//! blocks are live; the other grows with the bound of the live set. A counter holds how many live
//! samples hash to it. It may count too much (an entry that was dropped elsewhere): that costs a
//! look-up. It never counts too little. Samples that a process took by itself are not counted: it says itself
//! which of its blocks end ([`sampler_common::wire::LiveEntry::is_filtered`]).

use crate::{atomic, live, maps, settings};
use aya_ebpf::maps::Array;
use sampler_common::wire::{
    FILTER_FRONT_LIVE, FILTER_FRONT_SHIFT, FILTER_FULL, FILTER_LINE, filter_bit, filter_index,
    filter_lowered, filter_raised,
};

/// Attempts to change a word that others are changing.
const ATTEMPTS: u32 = 8;

/// The counters of one element.
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
    // SAFETY: as above; a byte cannot be read half.
    let pair = u32::from(unsafe { core::ptr::read_volatile(byte) });
    pair >> ((index & 1) << 2) & FILTER_FULL != 0
}

#[inline(always)]
fn line(map: &Array<Line>, index: u64) -> Option<*mut Line> {
    map.get_ptr_mut((index / u64::from(FILTER_LINE)) as u32)
}

/// Before a sample enters the live set.
#[inline(never)]
pub fn enter(pointer: u64, slot: u32) {
    for_both(pointer, slot, |word, bit| {
        if !change(word, |old| filter_raised(old, bit)) {
            // Too much is allowed, too little is not.
            atomic::or_u32(word, FILTER_FULL << bit);
        }
    });
}

/// After a sample has left the live set.
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

/// Whether the word could be changed.
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
