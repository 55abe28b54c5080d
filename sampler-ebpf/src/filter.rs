//! Counters in front of the live set: one or two cache lines tell most frees that nothing is there.
//!
//! Two levels: the front one is small, so that it costs no cache miss, but of use only while few
//! blocks are live; the other grows with the bound of the live set. A counter holds how many live
//! samples hash to it. It may count too much (an entry that was dropped elsewhere): that costs a
//! look-up. It never counts too little.

use crate::{atomic, maps, settings};
use aya_ebpf::maps::Array;
use sampler_common::wire::{FILTER_FRONT_SHIFT, filter_index};

#[inline(always)]
fn counter(map: &Array<[u32; 16]>, pointer: u64, slot: u32, shift: u64) -> Option<*mut u32> {
    let index = filter_index(pointer, slot, shift);
    let line = map.get_ptr_mut((index >> 4) as u32)?;
    // SAFETY: the index is masked to the line's 16 counters.
    Some(unsafe { line.cast::<u32>().add((index & 15) as usize) })
}

#[inline(always)]
fn front(pointer: u64, slot: u32) -> Option<*mut u32> {
    counter(&maps::FILTER_FRONT, pointer, slot, FILTER_FRONT_SHIFT)
}

#[inline(always)]
fn back(pointer: u64, slot: u32) -> Option<*mut u32> {
    counter(&maps::FILTER, pointer, slot, settings::filter_shift())
}

/// Whether a live sample may be at this address.
#[inline(always)]
pub fn may_hold(pointer: u64, slot: u32) -> bool {
    counts(front(pointer, slot)) && counts(back(pointer, slot))
}

#[inline(always)]
fn counts(counter: Option<*mut u32>) -> bool {
    match counter {
        // SAFETY: a counter inside a map value; a torn or stale read is impossible for an aligned u32.
        Some(counter) => unsafe { core::ptr::read_volatile(counter) != 0 },
        None => true,
    }
}

/// Before a sample enters the live set.
#[inline(always)]
pub fn enter(pointer: u64, slot: u32) {
    add(pointer, slot, 1);
}

/// After a sample has left the live set.
#[inline(always)]
pub fn leave(pointer: u64, slot: u32) {
    add(pointer, slot, 1u32.wrapping_neg());
}

#[inline(always)]
fn add(pointer: u64, slot: u32, amount: u32) {
    if let Some(counter) = front(pointer, slot) {
        atomic::fetch_add_u32(counter, amount);
    }
    if let Some(counter) = back(pointer, slot) {
        atomic::fetch_add_u32(counter, amount);
    }
}
