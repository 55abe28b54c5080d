//! The clock of progress, and the gate that it opens and closes.
//!
//! The clock is a timer of every CPU that calls [`tick`] when it finds the program in user mode. Of a program that runs slower because
//! it is probed it ticks as often as of the same program when it is not: time in the kernel does not count, and a tick that fell due in a trap is
//! taken on the first instruction behind it, which is known.

use crate::registers::Call;
use crate::{atomic, hits, maps, pid, record, settings, steps, target, traffic, words};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use sampler_common::counters::Outcome;
use sampler_common::limits::MAX_KERNEL_SLOTS;
use sampler_common::wire::{
    Cookie, Duty, FINE_SHADOW_NS, Gate, MARKERS, RETURN_SHADOW_NS, RecordKind, SPOT_BYTES, SPOTS,
    Space, UNKNOWN_TALLY, missed,
};

/// Whether the calls of a process are not to be seen now; they are counted as hits all the same.
#[inline(always)]
pub fn is_shut(slot: u32, cookie: Cookie) -> bool {
    if settings::duty() == 0 {
        return false;
    }
    let Some(duty) = maps::DUTIES.get_ptr(slot) else { return true };
    // SAFETY: a field of a map value; the clock may be writing it, hence volatile.
    let gate = unsafe { core::ptr::read_volatile(&raw const (*duty).gate) };
    if gate == Gate::Open as u64 && steps::is_seen(slot, duty) {
        return false;
    }
    hits::count(slot, cookie.counter_outside());
    if sleeps(gate) {
        wakes(slot);
    }
    true
}

/// Whether the process has stood still in its window, or before it.
#[inline(always)]
fn sleeps(gate: u64) -> bool {
    gate == Gate::Asleep as u64 || gate == Gate::ReadyAsleep as u64
}

/// A process goes on in its window. A function of its own, so that the verifier looks at it apart.
#[inline(never)]
fn wakes(slot: u32) {
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return };
    if go(duty, Gate::Asleep, Gate::Awake) || go(duty, Gate::ReadyAsleep, Gate::ReadyAwake) {
        tell(slot);
    }
}

/// A followed call returns: a tick just behind it may have fallen due in the trap.
#[inline(always)]
pub fn returned(call: &Call) {
    if settings::duty() == 0 {
        return;
    }
    let Some(returned) = maps::RETURNED.get_ptr_mut(0) else { return };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: a map value of this CPU.
    unsafe { *returned = [call.ip(), now] };
}

/// A marker is called. With as many calls as there may be the gate closes, or never opens: nobody knows how often a function is called before it is probed.
#[inline(always)]
pub fn called(call: &Call) {
    let cookie = call.cookie();
    let Some(slot) = target::known(call, cookie) else { return };
    hits::count(slot, cookie.counter());
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return };
    // SAFETY: a field of a map value; the clock may be writing it, hence volatile.
    let gate = unsafe { core::ptr::read_volatile(&raw const (*duty).gate) };
    if sleeps(gate) {
        wakes(slot);
    }
    // Probes come while it is due; what was counted by the time it opens is forgotten then.
    if ![Gate::Due as u64, Gate::Ready as u64, Gate::Open as u64].contains(&gate) {
        return;
    }
    let number = call.cookie().shape().size();
    // SAFETY: reads a local variable; volatile, so that the mask stays.
    let number =
        usize::from(unsafe { core::ptr::read_volatile(&raw const number) }) & (MARKERS - 1);
    // SAFETY: a field of a map value, and the index is less than the array's length.
    atomic::add(unsafe { (&raw mut (*duty).marks).cast::<u64>().add(number) }, 1);
    // Several CPUs may come to the end, or past it, at once.
    // SAFETY: a field of a map value.
    let left = atomic::fetch_add(unsafe { &raw mut (*duty).marks_left }, 1u64.wrapping_neg());
    let is_over =
        left as i64 <= 1 && (go(duty, Gate::Open, Gate::Over) || go(duty, Gate::Ready, Gate::Over));
    if is_over {
        tell(slot);
    }
}

/// The clock of progress has found a CPU in user mode.
#[inline(always)]
pub fn tick(context: *mut c_void) {
    let call = Call::new(context);
    // Where processes come by themselves this is how: between windows nobody calls a probe.
    let Some(slot) = target::running(&call) else { return };
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return };
    if is_delayed(call.ip(), duty) {
        return;
    }
    if is_beside() {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*duty).beside }, 1);
    }
    // SAFETY: a field of a map value.
    let clock = atomic::fetch_add(unsafe { &raw mut (*duty).clock }, 1) + 1;
    // SAFETY: a field of a map value; the daemon may be writing it, hence volatile.
    let due = unsafe { core::ptr::read_volatile(&raw const (*duty).due) };
    let comes = clock >= due && go(duty, Gate::Waiting, Gate::Due);
    // SAFETY: as above.
    let coarse = unsafe { core::ptr::read_volatile(&raw const (*duty).fine) } == 0;
    if comes || coarse && moves(slot, duty) {
        tell(slot);
    // SAFETY: as above.
    } else if sleeps(unsafe { core::ptr::read_volatile(&raw const (*duty).gate) }) {
        wakes(slot);
    }
}

/// The fine clock has found a CPU in user mode. It runs while a window waits to begin or to end.
#[inline(always)]
pub fn tick_fine(context: *mut c_void) {
    let call = Call::new(context);
    if let Some(at) = maps::FINE_TICK.get_ptr_mut(0) {
        // SAFETY: a map value of this CPU; the helper has no preconditions.
        unsafe { *at = bpf_ktime_get_ns() };
    }
    let Some((slot, duty)) = of() else { return };
    // SAFETY: a field of a map value; the daemon may be writing it, hence volatile.
    let fine = unsafe { core::ptr::read_volatile(&raw const (*duty).fine) } != 0;
    if fine && !is_delayed(call.ip(), duty) && moves(slot, duty) {
        tell(slot);
    }
}

/// The process on this CPU, if it has a budget.
#[inline(always)]
fn of() -> Option<(u32, *mut Duty)> {
    // SAFETY: copied at once.
    let slot = unsafe { maps::TARGETS.get(pid::current()?) }.copied()?;
    if slot >= MAX_KERNEL_SLOTS {
        return None;
    }
    Some((slot, maps::DUTIES.get_ptr_mut(slot)?))
}

/// Whether the tick may have fallen due in a trap.
#[inline(always)]
fn is_delayed(ip: u64, duty: *const Duty) -> bool {
    // SAFETY: a field of a map value.
    let spots = unsafe { &raw const (*duty).spots }.cast::<u64>();
    for at in 0..SPOTS {
        // SAFETY: the index is less than the array's length; the daemon may be writing it, hence volatile.
        let spot = unsafe { core::ptr::read_volatile(spots.add(at)) };
        if ip.wrapping_sub(spot) < SPOT_BYTES {
            return true;
        }
    }
    let Some(returned) = maps::RETURNED.get_ptr(0) else { return false };
    // SAFETY: a map value of this CPU.
    let [behind, at] = unsafe { *returned };
    // SAFETY: the helper has no preconditions.
    ip.wrapping_sub(behind) < SPOT_BYTES
        && unsafe { bpf_ktime_get_ns() }.wrapping_sub(at) < RETURN_SHADOW_NS
}

/// Whether the fine clock runs on this CPU.
#[inline(always)]
fn is_beside() -> bool {
    let Some(at) = maps::FINE_TICK.get_ptr(0) else { return false };
    // SAFETY: a map value of this CPU; the helper has no preconditions.
    unsafe { bpf_ktime_get_ns().wrapping_sub(*at) < FINE_SHADOW_NS }
}

/// Moves the gate, if it stands there.
#[inline(always)]
fn go(duty: *mut Duty, from: Gate, to: Gate) -> bool {
    // SAFETY: a field of a map value.
    atomic::exchange(unsafe { &raw mut (*duty).gate }, from as u64, to as u64)
}

/// A window begins, or comes nearer to its end; whether it has ended.
#[inline(always)]
fn moves(slot: u32, duty: *mut Duty) -> bool {
    // SAFETY: a field of a map value; others may be writing it, hence volatile.
    let gate = unsafe { core::ptr::read_volatile(&raw const (*duty).gate) };
    if gate == Gate::Due as u64 || gate == Gate::Ready as u64 {
        begins(duty);
        return false;
    }
    if gate != Gate::Open as u64 {
        return false;
    }
    // Several CPUs may come to the end, or past it, at once.
    // SAFETY: a field of a map value.
    let left = atomic::fetch_add(unsafe { &raw mut (*duty).left }, 1u64.wrapping_neg()) as i64 - 1;
    !steps::goes_on(slot, duty, left) && ends(duty)
}

/// The window ends at a step; whether it was open.
#[inline(always)]
pub fn close(slot: u32) -> bool {
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return false };
    let was_open = ends(duty);
    if was_open {
        tell(slot);
    }
    was_open
}

/// A window comes nearer to its beginning. If probes are there too late for that, it begins late and ends at its time, or not much later.
#[inline(always)]
fn begins(duty: *mut Duty) {
    // SAFETY: a field of a map value.
    let passed = atomic::fetch_add(unsafe { &raw mut (*duty).passed }, 1) + 1;
    // SAFETY: a field of a map value; the daemon may be writing it, hence volatile.
    let lead = unsafe { core::ptr::read_volatile(&raw const (*duty).lead) };
    // SAFETY: as above.
    let is_ready =
        unsafe { core::ptr::read_volatile(&raw const (*duty).gate) } == Gate::Ready as u64;
    if passed < lead || !is_ready {
        return;
    }
    // SAFETY: a field of a map value; others may be writing it, hence volatile.
    let left = unsafe { core::ptr::read_volatile(&raw const (*duty).left) };
    let less = missed(left, passed.wrapping_sub(lead));
    // Another CPU may have opened it just now.
    // SAFETY: as above.
    if unsafe { core::ptr::read_volatile(&raw const (*duty).gate) } != Gate::Ready as u64 {
        return;
    }
    // Before anything is seen, and before another CPU can end it.
    tallies_begin(duty);
    steps::open(duty, left.wrapping_sub(less));
    if go(duty, Gate::Ready, Gate::Open) {
        // SAFETY: a field of a map value.
        atomic::fetch_add(unsafe { &raw mut (*duty).left }, less.wrapping_neg());
        for number in 0..MARKERS {
            // SAFETY: a field of a map value, and the index is less than the array's length; others may be writing it, hence volatile.
            unsafe {
                core::ptr::write_volatile((&raw mut (*duty).marks).cast::<u64>().add(number), 0)
            };
        }
    }
}

/// What tallies show as a window begins. What they showed at the end of the one before says nothing of one that ends with its process.
#[inline(always)]
pub fn tallies_begin(duty: *mut Duty) {
    // SAFETY: fields of a map value; the daemon may be reading them, hence volatile.
    unsafe {
        core::ptr::write_volatile(&raw mut (*duty).opened, traffic::of_process());
        core::ptr::write_volatile(&raw mut (*duty).closed, UNKNOWN_TALLY);
    }
    // SAFETY: fields of a map value.
    let (opened, closed) =
        unsafe { (&raw mut (*duty).words_opened, &raw mut (*duty).words_closed) };
    words::read(duty, opened.cast());
    words::forget(closed.cast());
}

/// A window ends, with what they show then; whether it was open.
#[inline(always)]
fn ends(duty: *mut Duty) -> bool {
    // SAFETY: a field of a map value; the daemon may be reading it, hence volatile.
    unsafe { core::ptr::write_volatile(&raw mut (*duty).closed, traffic::of_process()) };
    // SAFETY: a field of a map value.
    words::read(duty, unsafe { &raw mut (*duty).words_closed }.cast());
    go(duty, Gate::Open, Gate::Over)
}

/// Wakes the daemon. What finds no room in the ring it sees a little later.
#[inline(always)]
fn tell(slot: u32) {
    let (Some(process), Some(totals)) =
        (maps::PROCESSES.get_ptr(slot), maps::TOTALS.get_ptr_mut(slot))
    else {
        return;
    };
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    record::event(RecordKind::Gate, Space { slot, generation }, totals, Outcome::EventRingFull);
}
