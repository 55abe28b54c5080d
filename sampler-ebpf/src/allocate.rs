//! An allocating function is called: charge the countdown, keep the exact totals, and say whether
//! this call's return matters.

use crate::atomic::{self, KernelRandom, MapCell};
use crate::registers::Call;
use crate::{filter, hits, live, maps, record, settings, shaped, target};
use sampler_common::counters::Outcome;
use sampler_common::limits::{CLASSES, FOLLOW_BYTES};
use sampler_common::sampling::{self, Design, Drawn};
use sampler_common::wire::{
    Cookie, LiveEntry, LiveKey, Pending, ProcessConfig, ProcessTotals, Role, Space,
};

/// Value of an entry program: the return probe of this call does not run.
const SKIP: u32 = 1;
/// Value of an entry program: it runs.
const FOLLOW: u32 = 0;

/// A call that asks for memory.
struct Request {
    slot: u32,
    role: u8,
    size: u64,
    /// Followed to its return even when not sampled.
    follow: bool,
    /// `out` of `posix_memalign`, `old` of `realloc`, else 0.
    argument: u64,
}

/// An allocating function is called.
#[inline(always)]
pub fn enter(call: &Call) -> u32 {
    let cookie = call.cookie();
    let Some(slot) = target::slot(call, cookie) else { return SKIP };
    if cookie.is_plain_malloc() {
        let size = call.argument0();
        return charge(
            call,
            Request {
                slot,
                role: Role::Malloc as u8,
                size,
                follow: size >= FOLLOW_BYTES,
                argument: 0,
            },
        );
    }
    other(call, slot, cookie)
}

#[inline(always)]
fn other(call: &Call, slot: u32, cookie: Cookie) -> u32 {
    let role = cookie.role();
    hits::count(slot, role);
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return SKIP };
    let mut asked = shaped::Asked { size: 0, argument: 0, follow: 0 };
    match shaped::ask(call.raw(), cookie.0, &raw mut asked) {
        shaped::CHARGED => {}
        shaped::REFUSED => {
            live::count(totals, Outcome::Refused);
            return SKIP;
        }
        _ => return nested(call, totals),
    }
    let shaped::Asked { size, argument, follow } = asked;
    charge(call, Request { slot, role, size, follow: follow != 0, argument })
}

/// The call is left to the function that it calls. Its own return may be hijacked all the same (always
/// without session links; with them, when another process's session link is on the same function:
/// its process filter says 0, which a session takes for "wanted"), and then the inner call's stack
/// shows the trampoline: keep what belongs there.
#[inline(always)]
fn nested(call: &Call, totals: *mut ProcessTotals) -> u32 {
    live::count(totals, Outcome::Nested);
    record::keep_return_address(call, totals);
    SKIP
}

#[inline(always)]
fn charge(call: &Call, request: Request) -> u32 {
    let Some(process) = maps::PROCESSES.get_ptr(request.slot) else { return SKIP };
    let Some(totals) = maps::TOTALS.get_ptr_mut(request.slot) else { return SKIP };
    let class = class_index(request.size);
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
    let decision =
        sampling::draw_points(design, request.size, &countdown, &position, &mut KernelRandom);
    // A realloc of a sampled block matters whatever its new size.
    let moves_sample = request.argument != 0
        && request.role == Role::Realloc as u8
        && settings::track_live() != 0
        && filter::may_hold(request.argument, request.slot);
    let sampled = match decision {
        Drawn { hits: 0, .. } if !request.follow && !moves_sample => {
            tally(totals, class, request.size);
            return SKIP;
        }
        Drawn { hits: 0, .. } => Sampled { design: 0, hits: 0, offset: 0 },
        Drawn { hits, offset } => Sampled { design: design.word(), hits, offset },
    };
    follow(call, &request, process, totals, sampled)
}

/// Size class as an index that the verifier believes: the compiler knows the bound and drops the mask,
/// unless the value has been out of its sight.
#[inline(always)]
pub fn class_index(size: u64) -> usize {
    let class = sampling::class(size);
    // SAFETY: reads a local variable.
    let class = unsafe { core::ptr::read_volatile(&raw const class) };
    class & (CLASSES - 1)
}

/// Adds an allocation that happened to the exact totals; `class` is a [`class_index`].
#[inline(always)]
pub fn tally(totals: *mut ProcessTotals, class: usize, size: u64) {
    // SAFETY: a field of a map value.
    let objects = unsafe { &raw mut (*totals).objects };
    // SAFETY: a field of a map value.
    let bytes = unsafe { &raw mut (*totals).bytes };
    // SAFETY: the index is masked to the array's length.
    atomic::add(unsafe { objects.cast::<u64>().add(class) }, 1);
    // SAFETY: as above.
    atomic::add(unsafe { bytes.cast::<u64>().add(class) }, size);
}

/// What the decision says of a call; 0 hits: followed for other reasons.
struct Sampled {
    design: u64,
    hits: u32,
    offset: u64,
}

#[inline(always)]
fn follow(
    call: &Call,
    request: &Request,
    process: *const ProcessConfig,
    totals: *mut ProcessTotals,
    sampled: Sampled,
) -> u32 {
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    let space = Space { slot: request.slot, generation };
    let mut pending = Pending {
        size: request.size,
        design: sampled.design,
        offset: sampled.offset,
        argument: request.argument,
        // The handler sees the probed instruction's own address.
        function: call.ip(),
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space,
        role: request.role as u32,
        hits: sampled.hits,
    };
    if request.role == Role::Realloc as u8 && settings::track_live() != 0 {
        // The old block leaves the live set before the allocator can give its address to another
        // thread; it is put back if the call fails.
        if let Some(old) = live::remove(&LiveKey { pointer: request.argument, space }) {
            pending.old = old;
        } else if sampled.hits == 0 && request.size < FOLLOW_BYTES && request.size != 0 {
            // The filter was wrong: an ordinary call after all.
            tally(totals, class_index(request.size), request.size);
            return SKIP;
        }
    }
    let key = call.pending_key(call.sp());
    if maps::PENDING.insert(&key, &pending, 0).is_err() {
        live::count(totals, Outcome::PendingFull);
        // Nearly every call succeeds: it counts, and its sample is weighed without a stack.
        tally(totals, class_index(request.size), request.size);
        if sampled.hits != 0 {
            record::lost(&pending, totals);
        }
        if pending.old.sample != 0 {
            // Nearly every realloc succeeds; its old block is over.
            live::count(totals, Outcome::Freed);
            record::freed(space, pending.old.sample, totals);
        }
        return SKIP;
    }
    FOLLOW
}
