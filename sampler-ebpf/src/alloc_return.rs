//! Return of a followed call: was a block allocated, and where?

use crate::atomic::KernelRandom;
use crate::live::{self, Inserted};
use crate::record::Sampled;
use crate::registers::Call;
use crate::{alloc_entry, maps, record, settings, window_gate};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use sampler_common::counters::Outcome;
use sampler_common::sampling::Random as _;
use sampler_common::wire::{
    HALVINGS_SHIFT, HITS_SHIFT, LiveEntry, LiveKey, MAX_HALVINGS, Pending, ProcessConfig,
    ProcessTotals, RecordKind, Role,
};

/// [`leave`] as a function of its own. If the session's program had both halves in one function,
/// its frame would be too large.
#[inline(never)]
pub fn leave_session(context: *mut c_void) {
    leave(&Call::new(context));
}

/// A followed call at its return.
pub struct Returned {
    pub pending: Pending,
    pub process: *const ProcessConfig,
    pub totals: *mut ProcessTotals,
}

/// Ends the pending state of a call. `None`: the call is not followed, or its slot has another
/// process by now.
#[inline(always)]
pub fn returned(call: &Call) -> Option<Returned> {
    // The return has popped the return address from the stack.
    let key = call.pending_key(call.sp().wrapping_sub(8));
    // SAFETY: copied at once; the key is this thread's own.
    let pending = (unsafe { maps::PENDING.get(&key) }).copied()?;
    if maps::PENDING.remove(&key).is_err() {
        return None;
    }
    let totals = maps::TOTALS.get_ptr_mut(pending.space.slot)?;
    let process = maps::PROCESSES.get_ptr(pending.space.slot)?;
    // SAFETY: a field of a map value.
    if unsafe { core::ptr::read_volatile(&raw const (*process).generation) }
        != pending.space.generation
    {
        live::count(totals, Outcome::StaleReturn);
        return None;
    }
    window_gate::returned(call);
    Some(Returned { pending, process, totals })
}

/// Runs at the return of an allocating function.
#[inline(always)]
pub fn leave(call: &Call) {
    let Some(Returned { pending, process, totals }) = returned(call) else { return };
    match block(call, &pending) {
        Block::At(pointer) => succeeded(call, &pending, pointer, process, totals),
        Block::Somewhere => {
            live::count(totals, Outcome::ReadFault);
            alloc_entry::add_exact_totals(totals, alloc_entry::class_index(pending.size), pending.size);
            if pending.hits != 0 {
                record::lost(&pending, totals);
            }
        }
        Block::None => failed(call, &pending, totals),
    }
}

/// The result of a call.
enum Block {
    /// A block at this address.
    At(u64),
    /// A block whose address cannot be read.
    Somewhere,
    /// No block: the call failed.
    None,
}

#[inline(always)]
fn block(call: &Call, pending: &Pending) -> Block {
    let result = call.result();
    if pending.role != Role::PosixMemalign as u32 {
        return if result != 0 { Block::At(result) } else { Block::None };
    }
    if result as u32 != 0 {
        return Block::None;
    }
    // SAFETY: reads user memory, and may fail.
    match unsafe { bpf_probe_read_user(pending.argument as *const u64) } {
        Ok(pointer) => Block::At(pointer),
        Err(_) => Block::Somewhere,
    }
}

#[inline(always)]
#[cfg_attr(not(feature = "log"), expect(unused_variables, reason = "only the log needs the call"))]
pub fn failed(call: &Call, pending: &Pending, totals: *mut ProcessTotals) {
    live::count(totals, Outcome::Failed);
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(call.context(), "failed: {} bytes", pending.size);
    if pending.old.sample == 0 {
        return;
    }
    if pending.size == 0 {
        // realloc(p, 0) of an allocator that treats it as free(p).
        live::count(totals, Outcome::Freed);
        record::freed(pending.space, pending.old.sample, totals);
        return;
    }
    // A failed realloc leaves the old block as it was.
    let key = LiveKey { pointer: pending.argument, space: pending.space };
    match live::insert(&key, &pending.old) {
        Inserted::Yes | Inserted::High => live::count(totals, Outcome::Restored),
        Inserted::Full | Inserted::Replaced(_) => live::count(totals, Outcome::RestoreFailed),
    }
}

#[inline(always)]
fn succeeded(
    call: &Call,
    pending: &Pending,
    pointer: u64,
    process: *const ProcessConfig,
    totals: *mut ProcessTotals,
) {
    alloc_entry::add_exact_totals(totals, alloc_entry::class_index(pending.size), pending.size);
    if pending.old.sample != 0 {
        live::count(totals, Outcome::Freed);
        record::freed(pending.space, pending.old.sample, totals);
    }
    if pending.hits != 0 {
        // SAFETY: the helper has no preconditions.
        let time_ns = unsafe { bpf_ktime_get_ns() };
        sample(call, pending, pointer, time_ns, process, totals);
    }
}

/// Handles a sampled allocation of time `time_ns`: enters it in the live set and sends its record.
#[inline(always)]
pub fn sample(
    call: &Call,
    pending: &Pending,
    pointer: u64,
    time_ns: u64,
    process: *const ProcessConfig,
    totals: *mut ProcessTotals,
) {
    let sample = live::next_sample();
    let key = LiveKey { pointer, space: pending.space };
    let halvings = call.unknown(live::halvings(process)) & MAX_HALVINGS;
    let flags = halvings << HALVINGS_SHIFT | u64::from(pending.hits) << HITS_SHIFT;
    let entry = LiveEntry { sample, size: pending.size, design: pending.design, time_ns, flags };
    let is_live = settings::track_live() != 0
        && !live::holds_nothing(process)
        && admit(call, halvings, totals)
        && hold(&key, &entry, totals);
    let live = if is_live { 1 + halvings } else { 0 };
    let live = call.unknown(live) as u32;
    let waiting = record::share(pending.space.slot, record::STACKS_SHARE);
    let has_share = waiting != record::NO_SHARE;
    let sampled = Sampled { sample, pointer, time_ns, live, waiting };
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(
        call.context(),
        "sample {}: {} bytes at {}",
        sample,
        pending.size,
        pointer
    );
    if has_share && record::allocated(call, &call.returned(), pending, &sampled) {
        live::count(totals, Outcome::Sampled);
        return;
    }
    record::lost(pending, totals);
    if live != 0 {
        live::mark_stack_lost(&key, sample);
    }
    // The count is last: whoever reads the count finds the mark when repairing.
    match has_share {
        true => live::count(totals, Outcome::RingFull),
        false => live::count(totals, Outcome::RingShare),
    }
}

/// Whether a sample may enter the live set: with probability 2^(−halvings).
#[inline(always)]
fn admit(call: &Call, halvings: u64, totals: *mut ProcessTotals) -> bool {
    let mask = (1u64 << (halvings & MAX_HALVINGS)) - 1;
    if halvings == 0 || KernelRandom(call).next() & mask == 0 {
        return true;
    }
    live::count(totals, Outcome::LiveDeclined);
    false
}

/// Enters the sample in the live set. Returns whether the live set holds the sample now.
#[inline(always)]
fn hold(key: &LiveKey, entry: &LiveEntry, totals: *mut ProcessTotals) -> bool {
    match live::insert(key, entry) {
        Inserted::Yes => true,
        Inserted::High => {
            record::event(RecordKind::LiveHigh, key.space, totals, Outcome::EventRingFull);
            true
        }
        Inserted::Full => {
            live::count(totals, Outcome::LiveFull);
            false
        }
        Inserted::Replaced(old) => {
            live::count(totals, Outcome::LiveReplaced);
            record::freed(key.space, old, totals);
            true
        }
    }
}
