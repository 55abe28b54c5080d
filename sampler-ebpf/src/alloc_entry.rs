//! Entry of an allocating function: charges the countdown, keeps the exact totals, and decides
//! whether the call's return is probed.

use crate::atomic::{self, KernelRandom, MapCell};
use crate::registers::Call;
use crate::{
    alloc_entry_only, filter, hits, live, mapping, maps, record, returns, ring_pressure, settings, arguments, target,
    window_gate,
};
use aya_ebpf::bindings::{BPF_EXIST, BPF_NOEXIST};
use aya_ebpf::cty::c_void;
use sampler_common::counters::Outcome;
use sampler_common::limits::{CLASSES, FOLLOW_BYTES};
use sampler_common::sampling::{self, Cell, Design, Drawn};
use sampler_common::wire::{
    ClassTotals, Cookie, LiveEntry, LiveKey, Pending, PendingKey, ProcessConfig, ProcessTotals,
    Role, Space,
};

/// Return value of an entry program: the return probe of this call does not run.
pub const SKIP: u32 = 1;
/// Return value of an entry program: the return probe of this call runs.
pub const FOLLOW: u32 = 0;

/// A call that asks for memory.
struct Request {
    slot: u32,
    role: u8,
    size: u64,
    /// The call is followed to its return even if it is not sampled.
    follow: bool,
    /// `out` of `posix_memalign`, `old` of `realloc`, else 0.
    argument: u64,
}

/// Runs at the entry of an allocating function. Returns [`SKIP`] or [`FOLLOW`].
#[inline(always)]
pub fn enter(call: &Call) -> u32 {
    // `unfollowed` is called here and not where the call is charged: both have deep stacks.
    match on_entry(call) {
        FOLLOW if returns::would_harm() => alloc_entry_only::unfollowed(call.raw()),
        answer => answer,
    }
}

#[inline(always)]
fn on_entry(call: &Call) -> u32 {
    let cookie = call.cookie();
    let Some(slot) = target::slot(call, cookie) else { return SKIP };
    if window_gate::is_shut(slot, cookie) {
        return SKIP;
    }
    let role = cookie.role();
    let size = if cookie.is_uncounted() {
        Some(call.argument0())
    } else if cookie.is_mapping() {
        // `mapping::enter` is called here and not below `slow_path`, because both have deep stacks.
        return mapping::enter(call.raw(), slot, role);
    } else {
        hits::count(slot, cookie.counter());
        fast_path_size(call, cookie, slot)
    };
    let charged = size.map_or(Charged::NOT, |size| fast_path(size, slot));
    if charged.is_not_sampled() {
        return SKIP;
    }
    slow_path(call.raw(), cookie.in_slot(slot).0, charged.design, charged.left)
}

/// Requested bytes of a call that needs no closer check; `None` for all other calls. Such a call
/// has the arguments of the function's prototype, does the work itself, and can fail only for want
/// of memory. (A single-stepped malloc may be slower.)
#[inline(always)]
fn fast_path_size(call: &Call, cookie: Cookie, slot: u32) -> Option<u64> {
    let (first, second) = (call.argument0(), call.argument1());
    if cookie.is_plain(Role::Calloc) {
        // No overflow: both factors are below 2^32.
        return ((first | second) >> 32 == 0).then_some(first.wrapping_mul(second));
    }
    let is_whole = cookie.is_plain(Role::Realloc) && first != 0 && second != 0;
    (is_whole && !moves_sample(first, slot)).then_some(second)
}

/// Whether a realloc of the block at `old` matters whatever its new size: the block may be a live
/// sample.
#[inline(always)]
fn moves_sample(old: u64, slot: u32) -> bool {
    settings::track_live() != 0 && filter::may_hold(old, slot)
}

/// What the countdown was charged for a request before [`slow_path`] checks the request.
struct Charged {
    /// Word of the design; 0: the request has not been charged.
    design: u64,
    /// Value of the countdown before the charge.
    left: u64,
}

impl Charged {
    const NOT: Charged = Charged { design: 0, left: 0 };
    /// The request was not sampled, and is in the exact totals.
    const NOT_SAMPLED: Charged = Charged { design: u64::MAX, left: 0 };

    #[inline(always)]
    fn is_not_sampled(&self) -> bool {
        self.design == u64::MAX
    }
}

/// The path of nearly every call: a request of moderate size that is not sampled. The path is as
/// short as possible.
#[inline(always)]
fn fast_path(size: u64, slot: u32) -> Charged {
    if size >= FOLLOW_BYTES {
        return Charged::NOT;
    }
    let Some(process) = maps::PROCESSES.get_ptr(slot) else { return Charged::NOT_SAMPLED };
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return Charged::NOT_SAMPLED };
    let class = class_index(size);
    let design = design(process, class);
    let Some(hazard) = design.fast_charge(size) else { return Charged::NOT };
    // SAFETY: a field of a map value.
    let left = MapCell(unsafe { &raw mut (*totals).countdown }).fetch_sub(hazard as i64) as u64;
    if sampling::keeps_running(left, hazard) {
        add_exact_totals(totals, class, size);
        return Charged::NOT_SAMPLED;
    }
    Charged { design: design.word(), left }
}

/// Every other path. A function of its own: [`fast_path`] then needs no stack, and the verifier
/// checks this function once.
#[inline(never)]
fn slow_path(context: *mut c_void, cookie: u64, design: u64, left: u64) -> u32 {
    let (call, cookie) = (&Call::new(context), Cookie(cookie));
    let mut request = Request {
        slot: cookie.slot(),
        role: Role::Malloc as u8,
        size: call.argument0(),
        follow: call.argument0() >= FOLLOW_BYTES,
        argument: 0,
    };
    if !cookie.is_plain_malloc() && other(call, cookie, &mut request) == SKIP {
        return SKIP;
    }
    charge(call, request.unknown(call), &Charged { design, left })
}

impl Request {
    /// The same request; the verifier no longer knows where its values come from.
    #[inline(always)]
    fn unknown(self, call: &Call) -> Request {
        let Request { slot, role, size, follow, argument } = self;
        let word = u64::from(slot) | u64::from(role) << 32 | u64::from(follow) << 40;
        let word = call.unknown(word);
        Request {
            slot: word as u32 & target::SLOTS,
            role: (word >> 32) as u8,
            size: call.unknown(size),
            follow: word >> 40 & 1 != 0,
            argument: call.unknown(argument),
        }
    }
}

/// Parses the arguments of a function whose prototype is not malloc's. Returns [`FOLLOW`] if the
/// call is to be charged.
#[inline(always)]
fn other(call: &Call, cookie: Cookie, request: &mut Request) -> u32 {
    let slot = request.slot;
    let role = cookie.role();
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return SKIP };
    let mut parsed = arguments::ParsedArguments { size: 0, argument: 0, follow: 0 };
    match arguments::parse(call.raw(), cookie.0, &raw mut parsed) {
        arguments::CHARGED => {}
        arguments::REFUSED => {
            live::count(totals, Outcome::Refused);
            return SKIP;
        }
        _ => return nested(call, totals),
    }
    let arguments::ParsedArguments { size, argument, follow } = parsed;
    *request = Request { slot, role, size, follow: follow != 0, argument };
    FOLLOW
}

/// Leaves the call to the function that it calls. The kernel may hijack the outer call's return all
/// the same: always without session links. With session links this happens when another process's
/// session link is on the same function: its process filter returns 0, which a session takes for
/// "wanted". The inner call's stack then shows the trampoline, so the real return address is kept.
#[inline(always)]
fn nested(call: &Call, totals: *mut ProcessTotals) -> u32 {
    live::count(totals, Outcome::Nested);
    record::keep_return_address(call, totals);
    SKIP
}

/// The design of a size class; `class` is a [`class_index`].
#[inline(always)]
pub fn design(process: *const ProcessConfig, class: usize) -> Design {
    // SAFETY: a field of a map value.
    let designs = unsafe { &raw const (*process).designs };
    // SAFETY: the index is masked to the array's length.
    let design = unsafe { designs.cast::<u64>().add(class) };
    // SAFETY: an aligned field of a map value; the daemon may be writing it, hence volatile.
    Design::from_word(unsafe { core::ptr::read_volatile(design) })
}

/// The countdown, which [`fast_path`] may already have charged for the request.
struct Countdown<'c> {
    cell: MapCell,
    charged: &'c Charged,
}

impl Cell for Countdown<'_> {
    #[inline(always)]
    fn fetch_sub(&self, amount: i64) -> i64 {
        if self.charged.design != 0 {
            return self.charged.left as i64;
        }
        self.cell.fetch_sub(amount)
    }

    #[inline(always)]
    fn swap(&self, value: i64) -> i64 {
        self.cell.swap(value)
    }
}

#[inline(always)]
fn charge(call: &Call, request: Request, charged: &Charged) -> u32 {
    let Some(process) = maps::PROCESSES.get_ptr(request.slot) else { return SKIP };
    let Some(totals) = maps::TOTALS.get_ptr_mut(request.slot) else { return SKIP };
    let class = call.unknown(class_index(request.size) as u64) as usize & (CLASSES - 1);
    let design = match charged.design {
        0 => design(process, class),
        word => Design::from_word(word),
    };
    let design = Design::from_word(call.unknown(design.word()));
    // SAFETY: a field of a map value.
    let cell = MapCell(unsafe { &raw mut (*totals).countdown });
    // SAFETY: a field of a map value.
    let position = MapCell(unsafe { &raw mut (*totals).position });
    let countdown = Countdown { cell, charged };
    let Drawn { hits, offset } =
        sampling::draw_points(design, request.size, &countdown, &position, &mut KernelRandom(call));
    let hits = call.unknown(u64::from(hits)) as u32;
    let moves_sample = request.argument != 0
        && request.role == Role::Realloc as u8
        && moves_sample(request.argument, request.slot);
    if hits == 0 && !request.follow && !moves_sample {
        add_exact_totals(totals, class, request.size);
        return SKIP;
    }
    let word = if hits == 0 { 0 } else { design.word() };
    if hits != 0 {
        ring_pressure::apply(request.slot, class as u32);
    }
    let sampled = Sampled { design: call.unknown(word), hits, offset: call.unknown(offset) };
    follow(call, &request, process, totals, sampled)
}

/// Size class as an index that the verifier accepts as bounded. A volatile read hides the value
/// from the compiler, which otherwise knows the bound and drops the mask.
#[inline(always)]
pub fn class_index(size: u64) -> usize {
    let class = sampling::class(size);
    // SAFETY: reads a local variable.
    let class = unsafe { core::ptr::read_volatile(&raw const class) };
    class & (CLASSES - 1)
}

/// Adds a successful allocation to the exact totals; `class` is a [`class_index`].
#[inline(always)]
pub fn add_exact_totals(totals: *mut ProcessTotals, class: usize, size: u64) {
    // SAFETY: a field of a map value.
    let classes = unsafe { &raw mut (*totals).classes };
    // SAFETY: the index is masked to the array's length.
    let class = unsafe { classes.cast::<ClassTotals>().add(class) };
    // SAFETY: a field of a map value.
    atomic::add(unsafe { &raw mut (*class).objects }, 1);
    // SAFETY: as above.
    atomic::add(unsafe { &raw mut (*class).bytes }, size);
}

/// The sampling decision for a call. 0 hits: the call is followed for other reasons.
struct Sampled {
    design: u64,
    hits: u32,
    offset: u64,
}

/// Keeps a call until it returns. Returns false if the map has no free entry. An entry that already
/// has the key belongs to a call that was left without a return.
#[inline(always)]
pub fn entered(key: &PendingKey, pending: &Pending, totals: *mut ProcessTotals) -> bool {
    if maps::PENDING.insert(key, pending, BPF_NOEXIST as u64).is_ok() {
        return true;
    }
    let replaced = maps::PENDING.insert(key, pending, BPF_EXIST as u64).is_ok();
    if replaced {
        live::count(totals, Outcome::PendingReplaced);
    }
    replaced
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
        // The handler sees the address of the probed instruction itself.
        function: call.ip(),
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space,
        role: request.role as u32,
        hits: sampled.hits,
    };
    if request.role == Role::Realloc as u8 && settings::track_live() != 0 {
        // The old block leaves the live set before the allocator can give its address to another
        // thread. The block is put back if the call fails.
        if let Some(old) = live::remove(&LiveKey { pointer: request.argument, space }) {
            pending.old = old;
        } else if sampled.hits == 0 && request.size < FOLLOW_BYTES && request.size != 0 {
            // The filter's answer was a false positive: this is an ordinary call.
            add_exact_totals(totals, class_index(request.size), request.size);
            return SKIP;
        }
    }
    let key = call.pending_key(call.sp());
    if !entered(&key, &pending, totals) {
        live::count(totals, Outcome::PendingFull);
        // Nearly every call succeeds. The call counts, and its sample is weighted without a stack.
        add_exact_totals(totals, class_index(request.size), request.size);
        if sampled.hits != 0 {
            record::lost(&pending, totals);
        }
        if pending.old.sample != 0 {
            // Nearly every realloc succeeds, so the old block is freed.
            live::count(totals, Outcome::Freed);
            record::freed(space, pending.old.sample, totals);
        }
        return SKIP;
    }
    FOLLOW
}
