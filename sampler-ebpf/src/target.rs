//! The slot of the calling process: by the link's cookie or, where processes share a link, by the
//! process's pid.

use crate::memo::{self, Memo};
use crate::registers::Call;
use crate::{atomic, maps, pid, record, settings};
use sampler_common::counters::Outcome;
use sampler_common::limits::MAX_KERNEL_SLOTS;
use sampler_common::wire::{
    Cookie, EXCLUDED, EXPECTED, KernelState, MEMO_EXCLUDED, MEMO_EXPECTED, MEMO_NOT_PROFILED,
    MEMO_UNKNOWN, RecordKind, SHARED, Space,
};

const NOEXIST: u64 = 1;

/// A mask that is larger than any slot. The verifier then knows the same bound for all paths to a
/// slot.
pub const SLOTS: u32 = 0xffff;

/// The slot of the calling process. An expected process takes a slot now. `None`: the process is
/// not profiled.
#[inline(always)]
pub fn slot(call: &Call, cookie: Cookie) -> Option<u32> {
    find(call, cookie).map(|slot| slot & SLOTS)
}

#[inline(always)]
fn find(call: &Call, cookie: Cookie) -> Option<u32> {
    if cookie.slot() != SHARED {
        return Some(cookie.slot());
    }
    match value(call.pid()) {
        MEMO_EXPECTED => claimed(),
        MEMO_EXCLUDED => {
            // SAFETY: a field of a map value.
            count(|state| unsafe { &raw mut (*state).excluded_calls });
            None
        }
        value => is_slot(value),
    }
}

/// The slot of the process on this CPU, whatever it is doing. An expected process takes a slot now.
/// `None`: the process is not profiled.
#[inline(always)]
pub fn running(call: &Call) -> Option<u32> {
    match value(call.pid()) {
        MEMO_EXPECTED => claimed(),
        value => is_slot(value),
    }
}

/// The slot of the calling process, if it has one.
#[inline(always)]
pub fn known(call: &Call, cookie: Cookie) -> Option<u32> {
    if cookie.slot() != SHARED {
        return Some(cookie.slot());
    }
    is_slot(value(call.pid()))
}

#[inline(always)]
fn is_slot(value: u32) -> Option<u32> {
    (value < MAX_KERNEL_SLOTS).then_some(value)
}

/// The target of a process: its slot, or one of the `MEMO_` constants.
#[inline(always)]
fn value(pid: u32) -> u32 {
    match memo::value(pid) {
        MEMO_UNKNOWN => look_up(pid),
        value => value,
    }
}

/// Looks up the target of the current process in `TARGETS`. The memo's key is the pid of the
/// initial namespace. Only this function computes the pid in the daemon's namespace, which is the
/// key of `TARGETS`.
#[inline(never)]
fn look_up(process: u32) -> u32 {
    let memo = Memo::of(process);
    // SAFETY: copied at once.
    let target = pid::current().map(|pid| unsafe { maps::TARGETS.get(pid) }.copied());
    let value = match target.flatten() {
        Some(EXCLUDED) => MEMO_EXCLUDED,
        Some(EXPECTED) => return MEMO_EXPECTED,
        Some(slot) => slot,
        None if target.is_some() && settings::everyone() != 0 => return MEMO_EXPECTED,
        None => MEMO_NOT_PROFILED,
    };
    if let Some(memo) = memo {
        memo.keep(value);
    }
    value
}

/// Increments a counter of [`KernelState`].
#[inline(always)]
fn count(field: impl Fn(*mut KernelState) -> *mut u64) {
    if let Some(state) = maps::STATE.get_ptr_mut(0) {
        atomic::add(field(state), 1);
    }
}

/// Takes a slot for the current process.
#[inline(always)]
fn claimed() -> Option<u32> {
    match claim() {
        SHARED => None,
        slot => Some(slot),
    }
}

/// Takes a slot for the current process; [`SHARED`] if it gets none.
#[inline(never)]
fn claim() -> u32 {
    let Some(pid) = pid::current() else { return SHARED };
    let Ok(Some(slot)) = maps::VACANT.pop() else {
        // SAFETY: a field of a map value.
        count(|state| unsafe { &raw mut (*state).unseen_calls });
        return SHARED;
    };
    // Another thread of the process may be taking a slot too: one of them succeeds.
    let taken = match maps::TARGETS.get_ptr_mut(pid) {
        Some(entry) => atomic::exchange_u32(entry, EXPECTED, slot),
        None => maps::TARGETS.insert(pid, slot, NOEXIST).is_ok(),
    };
    if !taken {
        // The slot came out of the queue, so the queue has room for it.
        let _ = maps::VACANT.push(slot, 0);
        // SAFETY: copied at once.
        return match unsafe { maps::TARGETS.get(pid) }.copied() {
            Some(slot) if slot < EXPECTED => slot,
            _ => {
                // SAFETY: a field of a map value.
                count(|state| unsafe { &raw mut (*state).unseen_calls });
                SHARED
            }
        };
    }
    // SAFETY: a field of a map value.
    count(|state| unsafe { &raw mut (*state).claims });
    let (Some(process), Some(totals)) =
        (maps::PROCESSES.get_ptr(slot), maps::TOTALS.get_ptr_mut(slot))
    else {
        return SHARED;
    };
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    record::event(RecordKind::Appeared, Space { slot, generation }, totals, Outcome::EventRingFull);
    slot
}
