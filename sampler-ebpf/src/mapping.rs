//! Memory that is not malloc's: `mmap`, `munmap`, `mremap` and `sbrk` of the C library, whoever
//! calls them.
//!
//! Few programs call these functions often. So every call of a profiled process is sent as one
//! record: exact, without sampling. The daemon decides from the stack who made the call, and
//! whether the caller is an allocator.

use crate::alloc_return::{self, Returned};
use crate::registers::Call;
use crate::{alloc_entry, atomic, live, maps, record, settings, snapshot};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use core::mem::MaybeUninit;
use sampler_common::counters::Outcome;
use sampler_common::limits::{MAPPING_STACKS_PER_SECOND, MAPPING_TIERS};
use sampler_common::wire::{
    LiveEntry, MappingCall, MappingRecord, Pending, ProcessTotals, RecordKind, Role, Space,
};

/// `mmap`'s flag: the mapping has no file.
const MAP_ANONYMOUS: u64 = 0x20;
/// `mmap`'s flag: map at this very address, and replace what is there. (`MAP_FIXED_NOREPLACE`
/// replaces nothing.)
const MAP_FIXED: u64 = 0x10;
const PAGE_MASK: u64 = 4095;

/// Runs at the entry of a mapping function. [`Pending`] keeps the arguments: `size` is the length,
/// `design` the flags. For `mremap`, `argument` and `offset` are the old address and length. For
/// `sbrk`, `argument` is the increment.
#[inline(never)]
pub fn enter(context: *mut c_void, slot: u32, role: u8) -> u32 {
    let call = Call::new(context);
    let Some(process) = maps::PROCESSES.get_ptr(slot) else { return alloc_entry::SKIP };
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return alloc_entry::SKIP };
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    let mut pending = Pending {
        size: call.argument1(),
        design: 0,
        offset: 0,
        argument: call.argument0(),
        function: call.ip(),
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space: Space { slot, generation },
        role: role as u32,
        hits: 0,
    };
    if role == Role::Unmap as u8 {
        // A call with invalid arguments fails and changes nothing.
        if pending.argument & PAGE_MASK == 0 && pending.size != 0 {
            send_record(&call, &pending, MappingCall::UnmapBegins, pending.argument, totals);
        }
        return alloc_entry::SKIP;
    }
    if role == Role::Map as u8 {
        pending.design = call.argument3();
        // A mapping of a file matters only if it replaces something.
        if pending.design & (MAP_ANONYMOUS | MAP_FIXED) == 0 {
            return alloc_entry::SKIP;
        }
    } else if role == Role::Remap as u8 {
        pending.offset = pending.size;
        pending.size = call.argument2();
        pending.design = call.argument3();
        send_record(&call, &pending, MappingCall::RemapBegins, 0, totals);
    } else if pending.argument == 0 {
        // The call only asks for the end of the heap.
        return alloc_entry::SKIP;
    }
    if !alloc_entry::entered(&call.pending_key(call.sp()), &pending, totals) {
        live::count(totals, Outcome::PendingFull);
        live::count(totals, Outcome::MappingRingFull);
        return alloc_entry::SKIP;
    }
    alloc_entry::FOLLOW
}

/// Runs at the return of a mapping function. Not called from [`alloc_return::leave`]: both have
/// deep stacks.
#[inline(never)]
pub fn leave(context: *mut c_void) -> u32 {
    let call = Call::new(context);
    let Some(Returned { pending, totals, .. }) = alloc_return::returned(&call) else { return 0 };
    let pending = &pending;
    let result = call.result();
    let failed = result > MappingRecord::LAST_ADDRESS;
    if pending.role == Role::Remap as u32 {
        send_record(&call, pending, MappingCall::RemapEnds, result, totals);
    } else if pending.role == Role::Map as u32 && !failed {
        send_record(&call, pending, MappingCall::Map, result, totals);
    } else if pending.role == Role::MoveBreak as u32 && !failed {
        let end = result.wrapping_add(pending.argument);
        send_record(&call, pending, MappingCall::Break, end, totals);
    }
    0
}

/// Whether the stack of a call is of use: only calls that create memory need a stack.
#[inline(always)]
fn wants_stack(pending: &Pending, call: MappingCall) -> bool {
    match call {
        MappingCall::Map => pending.design & MAP_ANONYMOUS != 0,
        MappingCall::Break => true,
        _ => false,
    }
}

/// Sends a record, with the stack if [`wants_stack`] says so.
#[inline(always)]
fn send_record(
    call: &Call,
    pending: &Pending,
    what: MappingCall,
    address: u64,
    totals: *mut ProcessTotals,
) {
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let wanted = wants_stack(pending, what);
    // The number of stacks a second is limited, so that the stacks fit the share of the ring that
    // every process has.
    let has_stack = wanted && may_copy(pending.space.slot, time_ns);
    let is_flooded = wanted && !has_stack;
    let old_address = match what {
        MappingCall::RemapBegins | MappingCall::RemapEnds => pending.argument,
        MappingCall::Break => call.result(),
        _ => 0,
    };
    if is_flooded {
        live::count(totals, Outcome::MappingFlooded);
    }
    let what = what as u32 | if is_flooded { MappingRecord::FLOODED } else { 0 };
    let report = MappingReport { call, pending, what, time_ns, address, old_address };
    let fills = |tier: usize| snapshot::fills(call.sp(), MAPPING_TIERS[tier]);
    let sent = if !has_stack {
        report.without_stack()
    } else if !fills(0) {
        report.with_stack::<{ MAPPING_TIERS[0] }>(false)
    } else if settings::largest_tier() == 0 {
        report.with_stack::<{ MAPPING_TIERS[0] }>(true)
    } else {
        report.with_stack::<{ MAPPING_TIERS[1] }>(fills(1))
    };
    let outcome = if sent { Outcome::MappingSeen } else { Outcome::MappingRingFull };
    live::count(totals, outcome);
}

/// Whether the process may copy another stack in this second.
#[inline(always)]
fn may_copy(slot: u32, time_ns: u64) -> bool {
    let Some(word) = maps::MAPPING_STACKS.get_ptr_mut(slot) else { return false };
    let second = (time_ns >> 30) << 32;
    // SAFETY: a map value.
    let before = unsafe { core::ptr::read_volatile(word) };
    if before >> 32 << 32 != second {
        // One of several threads begins the second; the other threads count in the new second.
        atomic::exchange(word, before, second);
    }
    (atomic::fetch_add(word, 1) as u32) < MAPPING_STACKS_PER_SECOND
}

#[repr(C)]
struct WithStack<const N: usize> {
    header: MappingRecord,
    stack: [u8; N],
}

/// The contents of a record. The record is built in its reserved place in the ring. A copy on the
/// stack would be too large for Linux 6.1, which allows 512 bytes for all functions that call one
/// another.
struct MappingReport<'c> {
    call: &'c Call,
    pending: &'c Pending,
    /// The value of [`MappingRecord::call`].
    what: u32,
    time_ns: u64,
    address: u64,
    old_address: u64,
}

impl MappingReport<'_> {
    #[inline(always)]
    fn record(&self, stack_bytes: u32) -> MappingRecord {
        let MappingReport { call, pending, what, time_ns, address, old_address } = *self;
        MappingRecord {
            kind: RecordKind::Mapping as u32,
            stack_bytes,
            space: pending.space,
            tid: call.thread() as u32,
            call: what,
            time_ns,
            address,
            length: pending.size,
            old_address,
            old_length: pending.offset,
            flags: pending.design,
            function: pending.function,
            ip: call.ip(),
            sp: call.sp(),
            bp: call.bp(),
        }
    }

    #[inline(always)]
    fn without_stack(&self) -> bool {
        let Some(mut entry) = maps::RING.reserve::<MappingRecord>(0) else { return false };
        record::count_sent(self.pending.space.slot, size_of::<MappingRecord>());
        entry.write(self.record(0));
        entry.submit(record::wakeup(record::waiting()));
        true
    }

    /// `fills`: the argument of [`snapshot::copy`].
    #[inline(always)]
    fn with_stack<const N: usize>(&self, fills: bool) -> bool {
        let Some(mut entry) = maps::RING.reserve::<WithStack<N>>(0) else { return false };
        record::count_sent(self.pending.space.slot, size_of::<WithStack<N>>());
        let place: *mut WithStack<N> = MaybeUninit::as_mut_ptr(&mut entry);
        // SAFETY: a field of the reserved record.
        let stack = unsafe { &raw mut (*place).stack }.cast::<u8>();
        let stack_bytes = snapshot::copy::<N>(self.call.sp(), stack, 0, fills);
        // SAFETY: a field of the reserved record.
        unsafe { (&raw mut (*place).header).write(self.record(stack_bytes)) };
        entry.submit(record::wakeup(record::waiting()));
        true
    }
}
