//! The live set: the sampled blocks that are held. The daemon repairs its copy from this set.

use crate::{atomic, filter, maps, settings};
use sampler_common::counters::Outcome;
use sampler_common::wire::{
    KernelState, LiveEntry, LiveKey, MAX_HALVINGS, ProcessConfig, ProcessTotals, STACK_LOST,
};

const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
const EEXIST: i32 = -17;
/// Halvings of other processes before a process with no more than its share is halved.
const HALVINGS_BEFORE_SMALL: u64 = 8;

#[inline(always)]
fn state() -> Option<*mut KernelState> {
    maps::STATE.get_ptr_mut(0)
}

/// Number of entries in the live set.
#[inline(always)]
pub fn entries() -> u64 {
    let Some(state) = state() else { return 0 };
    // SAFETY: a field of a map value.
    counted(unsafe { core::ptr::read_volatile(&raw const (*state).live) })
}

/// The value of a counter of entries, at least 0. An entry is counted after its insertion, and may
/// be removed in between.
#[inline(always)]
fn counted(entries: u64) -> u64 {
    entries.cast_signed().max(0).cast_unsigned()
}

/// Counts an outcome of a process.
#[inline(always)]
pub fn count(totals: *mut ProcessTotals, outcome: Outcome) {
    // SAFETY: a field of a map value; the index is a constant below the array's length.
    let counter = unsafe { &raw mut (*totals).outcomes[outcome as usize] };
    atomic::add(counter, 1);
}

/// Returns a number for the next sample, never 0.
#[inline(always)]
pub fn next_sample() -> u64 {
    match state() {
        // SAFETY: a field of a map value.
        Some(state) => atomic::fetch_add(unsafe { &raw mut (*state).sequence }, 1) + 1,
        None => u64::MAX,
    }
}

/// How often the probability of admission is halved for a new sample: 0 until the live set reaches
/// the fill at which the daemon is notified, then more and more. So the live set does not fill
/// before the daemon has thinned it.
///
/// For a process with no more than its share, halving begins after the others have been halved
/// [`HALVINGS_BEFORE_SMALL`] times. The fill does not depend on the sample itself, so that the
/// sample's weight 2^halvings/π is unbiased.
#[inline(always)]
pub fn halvings(process: *const ProcessConfig) -> u64 {
    let Some(state) = state() else { return 0 };
    let live = entries();
    let high = settings::live_high();
    if live < high {
        return 0;
    }
    // A division by 0 would panic, and the verifier rejects panics.
    let steps = (live - high).checked_div(settings::live_step()).unwrap_or(0) + 1;
    // SAFETY: a field of a map value.
    let share = unsafe { core::ptr::read_volatile(&raw const (*state).live_share) };
    // SAFETY: a field of a map value.
    let own = counted(unsafe { core::ptr::read_volatile(&raw const (*process).live) });
    let before_small = if own <= share { HALVINGS_BEFORE_SMALL } else { 0 };
    if steps < before_small + MAX_HALVINGS { steps.saturating_sub(before_small) } else { MAX_HALVINGS }
}

/// Whether no block of the process may enter the live set.
#[inline(always)]
pub fn holds_nothing(process: *const ProcessConfig) -> bool {
    // SAFETY: a field of a map value; the daemon may be writing it, hence volatile.
    unsafe { core::ptr::read_volatile(&raw const (*process).holds_nothing) != 0 }
}

/// Adds to the number of entries of a process.
#[inline(always)]
fn count_entries(slot: u32, change: u64) {
    if let Some(process) = maps::PROCESSES.get_ptr_mut(slot) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*process).live }, change);
    }
}

/// The result of an insertion.
pub enum Inserted {
    /// The entry is in the live set, and the set has just reached the fill at which the daemon is
    /// notified.
    High,
    /// The entry is in the live set.
    Yes,
    /// The set is full.
    Full,
    /// The entry replaced another sample at the same address: the free in between was missed.
    Replaced(u64),
}

/// Enters a sampled block.
#[inline(always)]
pub fn insert(key: &LiveKey, entry: &LiveEntry) -> Inserted {
    let is_filtered = entry.is_filtered();
    if is_filtered {
        filter::enter(key.pointer, key.space.slot);
    }
    let mut inserted = maps::LIVE.insert(key, entry, NOEXIST);
    if inserted == Err(EEXIST) {
        // If another entry replaces this one before the insertion below, the filter may be off by
        // one where the kinds of the entries differ. For that, two calls would have to be given one
        // address at once.
        // SAFETY: only copied from, and checked by the sample's number afterwards.
        let old = unsafe { maps::LIVE.get(key) };
        let (old, was_filtered) = old.map_or((0, false), |old| (old.sample, old.is_filtered()));
        // EXIST: an entry must not be inserted where the old one is gone. No counter would include
        // such an entry, and its removal would be subtracted all the same.
        if maps::LIVE.insert(key, entry, EXIST).is_ok() {
            // The filter still counts the replaced entry if that entry was filtered.
            if was_filtered {
                filter::leave(key.pointer, key.space.slot);
            }
            return Inserted::Replaced(old);
        }
        // The daemon has just removed the old entry, and has subtracted it from the counters.
        inserted = maps::LIVE.insert(key, entry, NOEXIST);
    }
    if inserted.is_err() {
        if is_filtered {
            filter::leave(key.pointer, key.space.slot);
        }
        return Inserted::Full;
    }
    count_entries(key.space.slot, 1);
    let before = match state() {
        // SAFETY: a field of a map value.
        Some(state) => atomic::fetch_add(unsafe { &raw mut (*state).live }, 1),
        None => 0,
    };
    if before + 1 == settings::live_high() { Inserted::High } else { Inserted::Yes }
}

/// Marks a live entry: the record with its stack was lost.
#[inline(always)]
pub fn mark_stack_lost(key: &LiveKey, sample: u64) {
    let Some(entry) = maps::LIVE.get_ptr_mut(key) else { return };
    // SAFETY: a field of a map value.
    if unsafe { (*entry).sample } == sample {
        // SAFETY: a field of a map value; an entry that now belongs to another sample is left
        // alone.
        unsafe { (*entry).flags |= STACK_LOST };
    }
}

/// Removes a block from the live set. Exactly one of several callers gets the entry.
#[inline(always)]
pub fn remove(key: &LiveKey) -> Option<LiveEntry> {
    // SAFETY: copied at once; whether the copy counts is decided by the removal below.
    let entry = *unsafe { maps::LIVE.get(key) }?;
    maps::LIVE.remove(key).ok()?;
    if entry.is_filtered() {
        filter::leave(key.pointer, key.space.slot);
    }
    count_entries(key.space.slot, 1u64.wrapping_neg());
    if let Some(state) = state() {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*state).live }, 1u64.wrapping_neg());
    }
    Some(entry)
}
