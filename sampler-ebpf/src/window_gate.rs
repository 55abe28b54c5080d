//! The clock of progress, and the gate that the clock opens and closes.
//!
//! The clock is a timer of every CPU that calls [`tick`] when it interrupts the program in user
//! mode. Time in the kernel does not count. So a program that its probes slow down makes as many
//! ticks for the same work as without probes.
//! A tick that falls due in a trap is delivered at the first instruction behind the trap. Such
//! ticks are recognised by their address and not counted.

use crate::registers::Call;
use crate::{atomic, hits, maps, record, settings, target};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use sampler_common::counters::Outcome;
use sampler_common::wire::{
    Cookie, Gate, PROBE_ADDRESSES, RETURN_SHADOW_NS, RecordKind, Space, TRAP_SHADOW_BYTES,
    WindowState,
};

/// A field of a window's state, which other CPUs or the daemon may be writing.
macro_rules! read {
    ($window:ident, $field:ident) => {
        // SAFETY: a field of a map value; others may be writing it, hence volatile.
        unsafe { core::ptr::read_volatile(&raw const (*$window).$field) }
    };
}

/// Whether a call of a process is outside of the process's windows. The hit is counted in any case.
#[inline(always)]
pub fn is_shut(slot: u32, cookie: Cookie) -> bool {
    if settings::windows() == 0 {
        return false;
    }
    let Some(window) = maps::WINDOWS.get_ptr(slot) else { return true };
    if read!(window, gate) == Gate::Open as u64 {
        return false;
    }
    hits::count(slot, cookie.counter_outside());
    true
}

/// Notes the return of a followed call. The trap may have delayed a tick just behind the call.
#[inline(always)]
pub fn returned(call: &Call) {
    if settings::windows() == 0 {
        return;
    }
    let Some(returned) = maps::RETURNED.get_ptr_mut(0) else { return };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: a map value of this CPU.
    unsafe { *returned = [call.ip(), now] };
}

/// Handles a timer interrupt of a CPU in user mode.
#[inline(always)]
pub fn tick(context: *mut c_void) {
    let call = Call::new(context);
    let Some(slot) = target::running(&call) else { return };
    let Some(window) = maps::WINDOWS.get_ptr_mut(slot) else { return };
    if is_delayed(call.ip(), window) {
        return;
    }
    // SAFETY: a field of a map value.
    let clock = atomic::fetch_add(unsafe { &raw mut (*window).clock }, 1) + 1;
    let gate = read!(window, gate);
    let has_moved = if gate == Gate::Waiting as u64 {
        clock >= read!(window, due) && go(window, Gate::Waiting, Gate::Due)
    } else if gate == Gate::Ready as u64 {
        if clock >= read!(window, open_at) {
            go(window, Gate::Ready, Gate::Open);
        }
        false
    } else if gate == Gate::Open as u64 {
        // Several CPUs may count the last tick, or a tick beyond it, at once.
        // SAFETY: a field of a map value.
        let left = atomic::fetch_add(unsafe { &raw mut (*window).left }, 1u64.wrapping_neg());
        left as i64 <= 1 && go(window, Gate::Open, Gate::Over)
    } else {
        false
    };
    if has_moved {
        wake_daemon(slot);
    }
}

/// Whether the tick may have fallen due in a trap.
#[inline(always)]
fn is_delayed(ip: u64, window: *const WindowState) -> bool {
    // SAFETY: a field of a map value.
    let probes = unsafe { &raw const (*window).probes }.cast::<u64>();
    for at in 0..PROBE_ADDRESSES {
        // SAFETY: the index is less than the array's length; the daemon may be writing the array,
        // hence volatile.
        let probe = unsafe { core::ptr::read_volatile(probes.add(at)) };
        if ip.wrapping_sub(probe) < TRAP_SHADOW_BYTES {
            return true;
        }
    }
    let Some(returned) = maps::RETURNED.get_ptr(0) else { return false };
    // SAFETY: a map value of this CPU.
    let [behind, at] = unsafe { *returned };
    // SAFETY: the helper has no preconditions.
    ip.wrapping_sub(behind) < TRAP_SHADOW_BYTES
        && unsafe { bpf_ktime_get_ns() }.wrapping_sub(at) < RETURN_SHADOW_NS
}

/// Changes the gate's state from `from` to `to`. Returns whether the gate was in state `from`.
#[inline(always)]
fn go(window: *mut WindowState, from: Gate, to: Gate) -> bool {
    // SAFETY: a field of a map value.
    atomic::exchange(unsafe { &raw mut (*window).gate }, from as u64, to as u64)
}

/// Wakes the daemon. If the ring is full, the daemon finds the change at its next poll.
#[inline(always)]
fn wake_daemon(slot: u32) {
    let (Some(process), Some(totals)) =
        (maps::PROCESSES.get_ptr(slot), maps::TOTALS.get_ptr_mut(slot))
    else {
        return;
    };
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    record::event(RecordKind::Gate, Space { slot, generation }, totals, Outcome::EventRingFull);
}
