//! Ring buffer records, and the counters of records that find no room.

use crate::registers::{Call, Frame};
use crate::{atomic, stack_bounds, stack_cache, live, maps, pid, python, settings, snapshot};
use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::{
    bpf_get_current_comm, bpf_ktime_get_ns, bpf_probe_read_user, bpf_ringbuf_query,
};
use core::mem::MaybeUninit;
use sampler_common::counters::Outcome;
use sampler_common::limits::SNAPSHOT_TIERS;
use sampler_common::sampling::size_bucket;
use sampler_common::wire::{
    AllocationRecord, EventRecord, FreeRecord, LostCell, LostKey, Pending, ProcessTotals,
    RecordKind, Space,
};

/// The values of a sample that its pending call does not have.
pub struct Sampled {
    /// The sample's number.
    pub sample: u64,
    /// The block's address.
    pub pointer: u64,
    /// Time of the allocation.
    pub time_ns: u64,
    /// As in [`AllocationRecord::live`].
    pub live: u32,
    /// Bytes that waited in the ring before this sample's record.
    pub waiting: u64,
}

/// Bytes that wait in the ring.
#[inline(always)]
pub fn waiting() -> u64 {
    const AVAILABLE_DATA: u64 = 0;
    // SAFETY: the map is a ring buffer.
    unsafe { bpf_ringbuf_query((&raw const maps::RING).cast_mut().cast(), AVAILABLE_DATA) }
}

/// Share of records with a stack; see [`share`].
pub const STACKS_SHARE: u64 = 2;
/// Share of free records. They are small, and their loss is expensive to repair.
const FREES_SHARE: u64 = 8;

/// Result of [`share`] in place of waiting bytes: the process has no share left.
pub const NO_SHARE: u64 = u64::MAX;

/// Returns the bytes that wait in the ring if the process may write another record, else
/// [`NO_SHARE`].
///
/// While the ring is less than half full, every process may write. From then on a process may write
/// while its own records in the ring take at most `times` the free bytes (dynamic thresholds:
/// Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So processes that send
/// little always find room: if n processes send all they can, each has `times` parts and one part
/// is free. The last sixteenth of the ring is for process events.
#[inline(never)]
#[unsafe(export_name = "record_share")]
pub extern "C" fn share(slot: u32, times: u64) -> u64 {
    let (size, waiting) = (settings::shared_ring_bytes(), waiting());
    if waiting < size / 2 || size == 0 {
        return waiting;
    }
    if waiting > size - size / 16 {
        return NO_SHARE;
    }
    let Some(process) = maps::PROCESSES.get_ptr(slot) else { return waiting };
    // SAFETY: a field of a map value. `ring_read` is read first: `ring_sent`, read later, is then
    // never less.
    let read = unsafe { core::ptr::read_volatile(&raw const (*process).ring_read) };
    // SAFETY: a field of a map value.
    let sent = unsafe { core::ptr::read_volatile(&raw const (*process).ring_sent) };
    let own = sent.wrapping_sub(read);
    let has_share = own <= size.saturating_sub(waiting).wrapping_mul(times) || own > size;
    if has_share { waiting } else { NO_SHARE }
}

/// Counts the `bytes` of a record that readers of the ring do not see yet.
#[inline(always)]
pub fn count_sent(slot: u32, bytes: usize) {
    if let Some(process) = maps::PROCESSES.get_ptr_mut(slot) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*process).ring_sent }, bytes as u64);
    }
}

/// Flag for a submit: wakes the daemon only when many bytes wait. `waiting` includes the new
/// record. Without a wakeup the daemon polls every few milliseconds.
#[inline(always)]
pub fn wakeup(waiting: u64) -> u64 {
    if waiting >= settings::wake_bytes() {
        BPF_RB_FORCE_WAKEUP as u64
    } else {
        BPF_RB_NO_WAKEUP as u64
    }
}

/// Sends a sampled allocation with its stack. Returns false if the ring has no room.
#[inline(always)]
pub fn allocated(call: &Call, frame: &Frame, pending: &Pending, sampled: &Sampled) -> bool {
    let has_python = call.unknown(python::send(pending.space.word(), sampled.sample));
    if settings::frame_pointers() != 0 {
        return emit::<{ snapshot::FRAME_BYTES }>(
            call,
            frame,
            pending,
            sampled,
            RecordKind::AllocationFrames,
            0,
        );
    }
    // In a Python program, equal native stacks may have different Python frames.
    if settings::stack_cache() != 0 && has_python == 0 {
        let (space, function) = (pending.space.word(), pending.function);
        let id = call.unknown(stack_cache::find(space, function, frame.ip, frame.sp, call.bp()));
        if id != 0 {
            let kind = RecordKind::AllocationKnown;
            return emit::<8>(call, frame, pending, sampled, kind, id);
        }
    }
    let bytes = call.unknown(stack_bounds::known(frame.sp, snapshot::largest() as u64));
    let kind = RecordKind::AllocationSnapshot;
    match call.unknown(snapshot::tier(frame.sp, bytes)) {
        0 => emit::<{ SNAPSHOT_TIERS[0] }>(call, frame, pending, sampled, kind, bytes),
        1 => emit::<{ SNAPSHOT_TIERS[1] }>(call, frame, pending, sampled, kind, bytes),
        2 => emit::<{ SNAPSHOT_TIERS[2] }>(call, frame, pending, sampled, kind, bytes),
        3 => emit::<{ SNAPSHOT_TIERS[3] }>(call, frame, pending, sampled, kind, bytes),
        _ => emit::<{ SNAPSHOT_TIERS[4] }>(call, frame, pending, sampled, kind, bytes),
    }
}

#[repr(C)]
struct WithStack<const N: usize> {
    header: AllocationRecord,
    stack: [u8; N],
}

/// Writes and submits one record. `known`: the number of bytes of stack if known, or the id of a
/// cached stack.
#[inline(always)]
fn emit<const N: usize>(
    call: &Call,
    frame: &Frame,
    pending: &Pending,
    sampled: &Sampled,
    kind: RecordKind,
    known: u64,
) -> bool {
    let Some(mut entry) = maps::RING.reserve::<WithStack<N>>(0) else { return false };
    count_sent(pending.space.slot, size_of::<WithStack<N>>());
    let record: *mut WithStack<N> = MaybeUninit::as_mut_ptr(&mut entry);
    // SAFETY: a field of the reserved record.
    let stack = unsafe { &raw mut (*record).stack }.cast::<u8>();
    let stack_bytes = match kind {
        RecordKind::AllocationFrames => snapshot::walk::<N>(call, frame, stack),
        RecordKind::AllocationKnown => {
            // SAFETY: the stack has 8 bytes, behind a header whose size is a multiple of 8.
            unsafe { stack.cast::<u64>().write(known) };
            8
        }
        // A tier smaller than the largest was chosen because the stack ends within the tier.
        _ => snapshot::copy::<N>(frame.sp, stack, known, N == snapshot::largest()),
    };
    let stack_bytes = call.unknown(u64::from(stack_bytes)) as u32;
    let thread = call.thread();
    let [hijacked_slot, hijacked_ip] = match kind {
        // A cached stack contains no trampoline.
        RecordKind::AllocationKnown => [0, 0],
        _ => hijacked(call, thread),
    };
    let header = AllocationRecord {
        kind: kind as u32,
        stack_bytes,
        space: pending.space,
        role: pending.role,
        tid: pid::current_thread(),
        sample: sampled.sample,
        time_ns: sampled.time_ns,
        pointer: sampled.pointer,
        size: pending.size,
        design: pending.design,
        offset: pending.offset,
        function: pending.function,
        ip: frame.ip,
        sp: frame.sp,
        bp: call.bp(),
        hijacked_slot,
        hijacked_ip,
        live: sampled.live,
        hits: pending.hits,
    };
    // SAFETY: a field of the reserved record.
    unsafe { (&raw mut (*record).header).write(header) };
    entry.submit(wakeup(sampled.waiting + size_of::<WithStack<N>>() as u64));
    true
}

/// The stack slot in which the kernel may have put its trampoline for an outer call of the thread,
/// and the address that the slot held before.
#[inline(always)]
fn hijacked(call: &Call, thread: u64) -> [u64; 2] {
    // SAFETY: copied at once; the key is this thread's own. The entry may be an old one. The daemon
    // uses the entry only if the trampoline really is in that slot.
    let kept = unsafe { maps::HIJACKED.get(thread) }.copied();
    let kept = kept.unwrap_or([0, 0]);
    [call.unknown(kept[0]), call.unknown(kept[1])]
}

/// Sends the free of a sampled block. A function of its own, so that the verifier checks the code
/// after a call once.
#[inline(never)]
pub fn freed(space: Space, sample: u64, totals: *mut ProcessTotals) {
    let waiting = share(space.slot, FREES_SHARE);
    if waiting == NO_SHARE {
        live::count(totals, Outcome::FreeRingShare);
        return;
    }
    let Some(mut entry) = maps::RING.reserve::<FreeRecord>(0) else {
        live::count(totals, Outcome::FreeRingFull);
        return;
    };
    count_sent(space.slot, size_of::<FreeRecord>());
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    entry.write(FreeRecord { kind: RecordKind::Free as u32, pad: 0, space, sample, time_ns });
    entry.submit(wakeup(waiting + size_of::<FreeRecord>() as u64));
}

/// Sends an event and wakes the daemon.
#[inline(always)]
pub fn event(kind: RecordKind, space: Space, totals: *mut ProcessTotals, full: Outcome) {
    let Some(mut entry) = maps::RING.reserve::<EventRecord>(0) else {
        live::count(totals, full);
        return;
    };
    count_sent(space.slot, size_of::<EventRecord>());
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    // Only processes of the daemon's pid namespace have events.
    let pid = pid::current().unwrap_or(0);
    let comm = bpf_get_current_comm().unwrap_or_default();
    entry.write(EventRecord { kind: kind as u32, pid, space, time_ns, comm });
    entry.submit(BPF_RB_FORCE_WAKEUP as u64);
}

/// Keeps what the daemon needs to weight a sample whose record found no room.
#[inline(never)]
pub fn lost(pending: &Pending, totals: *mut ProcessTotals) {
    let key = LostKey {
        design: pending.design,
        slot: pending.space.slot,
        bucket: size_bucket(pending.size),
    };
    let cell = LostCell {
        samples: 1,
        bytes: pending.size,
        hits: u64::from(pending.hits),
        tails: pending.size.wrapping_sub(pending.offset),
    };
    // Another CPU may insert the cell between the two attempts.
    if !add_lost(&key, &cell)
        && maps::LOST.insert(&key, &cell, 1).is_err()
        && !add_lost(&key, &cell)
    {
        live::count(totals, Outcome::LostCellsFull);
    }
}

#[inline(always)]
fn add_lost(key: &LostKey, one: &LostCell) -> bool {
    let Some(cell) = maps::LOST.get_ptr_mut(key) else { return false };
    // SAFETY: a field of a map value.
    atomic::add(unsafe { &raw mut (*cell).samples }, one.samples);
    // SAFETY: a field of a map value.
    atomic::add(unsafe { &raw mut (*cell).bytes }, one.bytes);
    // SAFETY: a field of a map value.
    atomic::add(unsafe { &raw mut (*cell).hits }, one.hits);
    // SAFETY: a field of a map value.
    atomic::add(unsafe { &raw mut (*cell).tails }, one.tails);
    true
}

/// Keeps the return address of an outer call, which the kernel may be about to hijack.
#[inline(always)]
pub fn keep_return_address(call: &Call, totals: *mut ProcessTotals) {
    let slot = call.sp();
    // SAFETY: reads user memory, and may fail.
    match unsafe { bpf_probe_read_user(slot as *const u64) } {
        Ok(address) => {
            // If the insertion fails, the inner call's stack ends at the trampoline, and the
            // stack's end shows that.
            let _ = maps::HIJACKED.insert(call.thread(), [slot, address], 0);
        }
        Err(_) => live::count(totals, Outcome::ReadFault),
    }
}
