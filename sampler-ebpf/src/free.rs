//! Frees of blocks.

use crate::registers::Call;
use crate::{filter, hits, live, maps, record, target};
use sampler_common::counters::Outcome;
use sampler_common::wire::{LiveKey, Space};

/// `void free(void *p)`
#[inline(always)]
pub fn enter(call: &Call) {
    let cookie = call.cookie();
    let Some(slot) = target::known(call, cookie) else { return };
    hits::count(slot, cookie.counter());
    let shape = cookie.shape();
    let pointer = if shape.is_own() { call.argument(shape.pointer()) } else { call.argument0() };
    if pointer == 0 || !filter::may_hold(pointer, slot) {
        return;
    }
    end(pointer, slot);
}

/// Ends the block at an address, if the block is a sampled one.
#[inline(never)]
pub fn end(pointer: u64, slot: u32) {
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return };
    let Some(process) = maps::PROCESSES.get_ptr(slot) else { return };
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    let space = Space { slot, generation };
    if let Some(entry) = live::remove(&LiveKey { pointer, space }) {
        live::count(totals, Outcome::Freed);
        record::freed(space, entry.sample, totals);
    }
}
