//! Counters in front of the live set: one cache line tells most frees that nothing is there.
//!
//! A counter holds how many live samples hash to it. It may count too much (an entry that was
//! dropped elsewhere): that costs a look-up. It never counts too little.

use crate::{atomic, maps, settings};
use sampler_common::wire::filter_index;

#[inline(always)]
fn counter(pointer: u64, slot: u32) -> Option<*mut u32> {
    let index = filter_index(pointer, slot, settings::filter_shift());
    let line = maps::FILTER.get_ptr_mut((index >> 4) as u32)?;
    // SAFETY: the index is masked to the line's 16 counters.
    Some(unsafe { line.cast::<u32>().add((index & 15) as usize) })
}

/// Whether a live sample may be at this address.
#[inline(always)]
pub fn may_hold(pointer: u64, slot: u32) -> bool {
    match counter(pointer, slot) {
        // SAFETY: a counter inside a map value; a torn or stale read is impossible for an aligned u32.
        Some(counter) => unsafe { core::ptr::read_volatile(counter) != 0 },
        None => true,
    }
}

/// Before a sample enters the live set.
#[inline(always)]
pub fn enter(pointer: u64, slot: u32) {
    if let Some(counter) = counter(pointer, slot) {
        atomic::fetch_add_u32(counter, 1);
    }
}

/// After a sample has left the live set.
#[inline(always)]
pub fn leave(pointer: u64, slot: u32) {
    if let Some(counter) = counter(pointer, slot) {
        atomic::fetch_add_u32(counter, 1u32.wrapping_neg());
    }
}
