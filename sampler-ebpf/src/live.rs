//! The live set: which sampled blocks are held. It is the truth; the daemon's picture is repaired from it.

use crate::{atomic, filter, maps, settings};
use sampler_common::counters::Outcome;
use sampler_common::wire::{
    KernelState, LiveEntry, LiveKey, MAX_HALVINGS, ProcessConfig, ProcessTotals, STACK_LOST,
};

const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
const EEXIST: i32 = -17;
/// Halvings of others before a process is halved that has no more than its share.
const SPARED: u64 = 8;

#[inline(always)]
fn state() -> Option<*mut KernelState> {
    maps::STATE.get_ptr_mut(0)
}

/// Entries of the live set.
#[inline(always)]
pub fn entries() -> u64 {
    let Some(state) = state() else { return 0 };
    // SAFETY: a field of a map value.
    counted(unsafe { core::ptr::read_volatile(&raw const (*state).live) })
}

/// What a counter of entries shows: an entry is counted when it is there, and may be taken out in between.
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

/// A number for the next sample, never 0.
#[inline(always)]
pub fn next_sample() -> u64 {
    match state() {
        // SAFETY: a field of a map value.
        Some(state) => atomic::fetch_add(unsafe { &raw mut (*state).sequence }, 1) + 1,
        None => u64::MAX,
    }
}

/// How often the chance of admission is halved for a new sample: not at all until the live set is as
/// full as the daemon wants to know, then ever more, so that it does not fill before the daemon has
/// thinned it. A process that has no more than its share is spared until the others have been halved often.
/// Fullness does not depend on the sample itself, so that its weight 2^halvings/π is unbiased.
#[inline(always)]
pub fn halvings(process: *const ProcessConfig) -> u64 {
    let Some(state) = state() else { return 0 };
    let live = entries();
    let high = settings::live_high();
    if live < high {
        return 0;
    }
    // A step of 0 would be a panic, which the verifier does not take.
    let steps = (live - high).checked_div(settings::live_step()).unwrap_or(0) + 1;
    // SAFETY: a field of a map value.
    let share = unsafe { core::ptr::read_volatile(&raw const (*state).live_share) };
    // SAFETY: a field of a map value.
    let own = counted(unsafe { core::ptr::read_volatile(&raw const (*process).live) });
    let spared = if own <= share { SPARED } else { 0 };
    if steps < spared + MAX_HALVINGS { steps.saturating_sub(spared) } else { MAX_HALVINGS }
}

/// Whether no block of the process may be held.
#[inline(always)]
pub fn holds_nothing(process: *const ProcessConfig) -> bool {
    // SAFETY: a field of a map value; the daemon may be writing it, hence volatile.
    unsafe { core::ptr::read_volatile(&raw const (*process).holds_nothing) != 0 }
}

/// Counts the entries of a process.
#[inline(always)]
fn count_entries(slot: u32, change: u64) {
    if let Some(process) = maps::PROCESSES.get_ptr_mut(slot) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*process).live }, change);
    }
}

/// How an insertion went.
pub enum Inserted {
    /// It is in the live set, and the set has just become as full as the daemon wants to know.
    High,
    /// It is in the live set.
    Yes,
    /// The set is full.
    Full,
    /// It replaced another sample at the same address: the free in between was missed.
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
        // Should another one come between this look and what follows, the filter may be off by one where their kinds differ: two
        // calls would have to be given one address at once.
        // SAFETY: only copied from, and checked by the sample's number afterwards.
        let old = unsafe { maps::LIVE.get(key) };
        let (old, was_filtered) = old.map_or((0, false), |old| (old.sample, old.is_filtered()));
        // Never where nothing is any more: such an entry would be in no counter, and its end would be subtracted all the same.
        if maps::LIVE.insert(key, entry, EXIST).is_ok() {
            // The place in the filter of the entry that was there, if it had one.
            if was_filtered {
                filter::leave(key.pointer, key.space.slot);
            }
            return Inserted::Replaced(old);
        }
        // The daemon has just taken it out, with its place in the counters.
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

/// Notes at a live entry that the record with its stack was lost.
#[inline(always)]
pub fn mark_stack_lost(key: &LiveKey, sample: u64) {
    let Some(entry) = maps::LIVE.get_ptr_mut(key) else { return };
    // SAFETY: a field of a map value.
    if unsafe { (*entry).sample } == sample {
        // SAFETY: a field of a map value; an entry that is another sample's by now is left alone.
        unsafe { (*entry).flags |= STACK_LOST };
    }
}

/// Takes a block out of the live set; exactly one of several callers gets it.
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
