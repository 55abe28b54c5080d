//! Allocating functions whose return must not be probed: functions that can throw, and calls of
//! threads that a return probe would end. (The C++ unwinder stops at the kernel's trampoline and
//! ends the process.)
//!
//! Everything is done at the entry. So the block's address is not known, and its free is not seen.

use crate::alloc_entry::{SKIP, add_exact_totals, class_index};
use crate::atomic::{KernelRandom, MapCell};
use crate::record::Sampled;
use crate::registers::{Call, Frame};
use crate::{alloc_return, hits, live, maps, record, ring_pressure, arguments, target, window_gate};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use sampler_common::counters::Outcome;
use sampler_common::limits::UNSEEN_REFUSED_BYTES;
use sampler_common::sampling::{self, Decision, Design};
use sampler_common::wire::{LiveEntry, Pending, ProcessTotals, Role, Space};

/// `void *operator new(std::size_t size)`
#[inline(always)]
pub fn enter(call: &Call) {
    let cookie = call.cookie();
    let Some(slot) = target::slot(call, cookie) else { return };
    if window_gate::is_shut(slot, cookie) {
        return;
    }
    hits::count(slot, cookie.counter());
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return };
    let shape = cookie.shape();
    let size = match shape.is_own() {
        true => arguments::size(call, shape),
        false => Some(call.argument0()),
    };
    let Some(size) = size.filter(|size| *size < UNSEEN_REFUSED_BYTES) else {
        live::count(totals, Outcome::Refused);
        return;
    };
    charge(call, slot, totals, size);
}

#[inline(always)]
fn charge(call: &Call, slot: u32, totals: *mut ProcessTotals, size: u64) {
    let Some(process) = maps::PROCESSES.get_ptr(slot) else { return };
    let class = class_index(size);
    // SAFETY: a field of a map value.
    let designs = unsafe { &raw const (*process).designs };
    // SAFETY: the index is masked to the array's length.
    let design = unsafe { designs.cast::<u64>().add(class) };
    // SAFETY: an aligned field of a map value; the daemon may be writing it, hence volatile.
    let design = Design::from_word(unsafe { core::ptr::read_volatile(design) });
    // SAFETY: a field of a map value.
    let countdown = MapCell(unsafe { &raw mut (*totals).countdown });
    // SAFETY: a field of a map value.
    let position = MapCell(unsafe { &raw mut (*totals).position });
    add_exact_totals(totals, class, size);
    let Decision::Hit { hits, offset } =
        sampling::decide(design, size, &countdown, &position, &mut KernelRandom(call))
    else {
        return;
    };
    ring_pressure::apply(slot, class as u32);
    // Always 0: code has no such addresses. The verifier does not know that, and checks the
    // following code once.
    let unknown = call.ip() >> 63;
    // SAFETY: a field of a map value; the kernel side may be raising it, hence volatile.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    let pending = Pending {
        size,
        design: design.word(),
        offset: offset | unknown,
        argument: 0,
        function: call.ip(),
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space: Space { slot, generation },
        role: Role::New as u32,
        hits: hits | unknown as u32,
    };
    send(call, &pending, totals);
}

/// Handles a followed call whose return must not be probed. The call counts unless it is bound to
/// fail. The fate of its block is not known.
#[inline(never)]
pub fn unfollowed(context: *mut c_void) -> u32 {
    let call = &Call::new(context);
    let key = call.pending_key(call.sp());
    // SAFETY: copied at once; the key is this thread's own.
    let Some(pending) = (unsafe { maps::PENDING.get(&key) }).copied() else { return SKIP };
    if maps::PENDING.remove(&key).is_err() {
        return SKIP;
    }
    let Some(totals) = maps::TOTALS.get_ptr_mut(pending.space.slot) else { return SKIP };
    live::count(totals, Outcome::ReturnUnprobed);
    if pending.role >= Role::Map as u32 {
        return SKIP;
    }
    let frees = pending.size == 0 && pending.role == Role::Realloc as u32;
    if frees || pending.size >= UNSEEN_REFUSED_BYTES {
        alloc_return::failed(call, &pending, totals);
        return SKIP;
    }
    add_exact_totals(totals, class_index(pending.size), pending.size);
    if pending.old.sample != 0 {
        // Nearly every realloc succeeds, so the old block is freed.
        live::count(totals, Outcome::Freed);
        record::freed(pending.space, pending.old.sample, totals);
    }
    if pending.hits != 0 {
        send(call, &pending, totals);
    }
    SKIP
}

/// Sends what the return probe would have sent: the caller's stack as it is when the call has
/// returned.
#[inline(always)]
fn send(call: &Call, pending: &Pending, totals: *mut ProcessTotals) {
    let slot = call.sp();
    // SAFETY: reads user memory, and may fail.
    let Ok(ip) = (unsafe { bpf_probe_read_user(slot as *const u64) }) else {
        live::count(totals, Outcome::ReadFault);
        record::lost(pending, totals);
        return;
    };
    let frame = Frame { ip, sp: slot.wrapping_add(8), at_entry: true };
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let waiting = record::share(pending.space.slot, record::STACKS_SHARE);
    if waiting == record::NO_SHARE {
        record::lost(pending, totals);
        live::count(totals, Outcome::RingShare);
        return;
    }
    let sample = live::next_sample();
    let sampled = Sampled { sample, pointer: 0, time_ns, live: 0, waiting };
    if record::allocated(call, &frame, pending, &sampled) {
        live::count(totals, Outcome::Sampled);
        return;
    }
    record::lost(pending, totals);
    live::count(totals, Outcome::RingFull);
}
