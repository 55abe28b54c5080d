//! Samples of processes that sample by themselves: the USDTs of the provider `otel_memory`.
//!
//! Such a probe lies anywhere in a function, and its arguments are where the compiler had them. The
//! cookie has the number of the arguments' [`Site`], or says that the arguments are where a
//! function's arguments are.
//! The probe fires for sampled allocations only, so it costs a process only what the process asks
//! for. Impossible values are refused, and the samples of a process are limited in number per
//! second.

use crate::registers::Call;
use crate::{atomic, alloc_return, hits, live, maps, free, target};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_probe_read_user};
use sampler_common::counters::Outcome;
use sampler_common::limits::{EXTERNAL_PER_SECOND, LIBRARY_ACCEPTED_PER_SECOND};
use sampler_common::sampling;
use sampler_common::wire::{
    Cookie, LiveEntry, Operand, OperandKind, Pending, ProcessConfig, ProcessTotals, Role,
    SITE_ARGUMENTS, Site, Space, Unusual,
};

/// Offset of the last register in `struct pt_regs`.
const LAST_REGISTER: u64 = 160;

/// `otel_memory:alloc(void *pointer, size_t size, size_t weighted_bytes)`, and the probe
/// `sampler_preload:ended` of our own library.
#[inline(always)]
pub fn allocated(call: &Call) {
    let cookie = call.cookie();
    let Some(slot) = target::slot(call, cookie) else { return };
    hits::count(slot, cookie.counter());
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return };
    if cookie.role() == Role::LibraryEnded as u8 {
        return unusual(arguments::<1>(call, cookie), totals);
    }
    let Some(process) = maps::PROCESSES.get_ptr_mut(slot) else { return };
    let Some([pointer, size, weighted]) = arguments::<SITE_ARGUMENTS>(call, cookie) else {
        live::count(totals, Outcome::ReadFault);
        return;
    };
    let design = if pointer == 0 { None } else { sampling::external(size, weighted) };
    let Some(design) = design else {
        live::count(totals, Outcome::UsdtRefused);
        return;
    };
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let limit = match cookie.is_in_library() {
        true => LIBRARY_ACCEPTED_PER_SECOND,
        false => EXTERNAL_PER_SECOND,
    };
    if !is_within(limit, process, time_ns) {
        live::count(totals, Outcome::UsdtFlood);
        return;
    }
    // SAFETY: a field of a map value.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    let pending = Pending {
        size,
        design: design.word(),
        offset: 0,
        argument: 0,
        function: call.ip(),
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space: Space { slot, generation },
        role: Role::OtelAlloc as u32,
        hits: 1,
    };
    alloc_return::sample(call, &pending, pointer, time_ns, process, totals);
}

/// `sampler_preload:ended(uint64_t how)`
#[inline(always)]
fn unusual(how: Option<[u64; SITE_ARGUMENTS]>, totals: *mut ProcessTotals) {
    const TABLE_FULL: u64 = Unusual::TableFull as u64;
    const ENDED_LATE: u64 = Unusual::EndedLate as u64;
    const EMPTY: u64 = Unusual::Empty as u64;
    const FAILED: u64 = Unusual::Failed as u64;
    match how.map(|[how, ..]| how) {
        Some(TABLE_FULL) => live::count(totals, Outcome::LibraryFull),
        Some(ENDED_LATE) => live::count(totals, Outcome::LibraryLate),
        Some(EMPTY) => live::count(totals, Outcome::LibraryEmpty),
        Some(FAILED) => live::count(totals, Outcome::LibraryFailed),
        _ => live::count(totals, Outcome::UsdtRefused),
    }
}

/// `otel_memory:free(void *pointer)`
#[inline(always)]
pub fn freed(call: &Call) {
    let cookie = call.cookie();
    let Some(slot) = target::known(call, cookie) else { return };
    hits::count(slot, cookie.counter());
    match arguments::<1>(call, cookie) {
        // The filter is not asked: the block is nearly always in the live set.
        Some([pointer, ..]) => free::end(pointer, slot),
        None => {
            if let Some(totals) = maps::TOTALS.get_ptr_mut(slot) {
                live::count(totals, Outcome::ReadFault);
            }
        }
    }
}

/// The first `N` arguments; `None` if one of them cannot be read.
#[inline(always)]
fn arguments<const N: usize>(call: &Call, cookie: Cookie) -> Option<[u64; SITE_ARGUMENTS]> {
    if cookie.site() == Site::FUNCTION_REGISTERS {
        return Some([call.argument0(), call.argument1(), call.argument2()]);
    }
    let mut words = [0; SITE_ARGUMENTS];
    read(call.raw(), cookie.site(), N as u32, &mut words).then_some(words)
}

/// Reads the `wanted` first arguments from the places of a site. Returns whether all could be read.
/// A function of its own, apart from the calls that need no site.
#[inline(never)]
fn read(context: *mut c_void, site: u32, wanted: u32, words: &mut [u64; SITE_ARGUMENTS]) -> bool {
    let call = Call::new(context);
    let Some(site) = maps::SITES.get_ptr(site) else { return false };
    for (number, value) in words.iter_mut().enumerate() {
        if number as u32 >= wanted {
            break;
        }
        // SAFETY: a field of a map value; `number` is below the array's length.
        let operand = unsafe { (&raw const (*site).arguments).cast::<Operand>().add(number) };
        // SAFETY: an entry is written before the first link that names it, and never changed.
        let operand = unsafe { core::ptr::read_volatile(operand) };
        let Some(word) = word(&call, &operand) else { return false };
        *value = operand.extend(word);
    }
    true
}

#[inline(always)]
fn word(call: &Call, operand: &Operand) -> Option<u64> {
    let value = operand.value as u64;
    if operand.kind == OperandKind::Constant as u8 {
        return Some(value);
    }
    let base = register(call, operand.register)?;
    if operand.kind == OperandKind::Register as u8 {
        return Some(base);
    }
    let mut address = base.wrapping_add(value);
    if operand.index != Operand::NO_INDEX {
        let index = register(call, operand.index)?;
        address = address.wrapping_add(index << (operand.shift & 3));
    }
    // SAFETY: reads user memory, and may fail. An argument shorter than a word at the end of a page
    // cannot be read as a word.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// The register at an offset in the task's registers. The helper reads it, since the verifier
/// accepts only constant offsets into the context.
#[inline(always)]
fn register(call: &Call, offset: u8) -> Option<u64> {
    let offset = u64::from(offset);
    if offset > LAST_REGISTER {
        return None;
    }
    // SAFETY: the context is the task's `struct pt_regs`, 168 bytes.
    let place = unsafe { call.raw().cast::<u8>().add(offset as usize) };
    // SAFETY: reads inside that struct.
    unsafe { bpf_probe_read_kernel(place.cast::<u64>().cast_const()) }.ok()
}

/// Whether one more sample of this process is within `limit` samples a second. Two CPUs that begin
/// a second together may lose a few counts.
#[inline(always)]
fn is_within(limit: u64, process: *mut ProcessConfig, time_ns: u64) -> bool {
    let now = time_ns >> 30;
    // SAFETY: fields of a map value.
    let (second, sent) =
        unsafe { (&raw mut (*process).external_second, &raw mut (*process).external_sent) };
    // SAFETY: an aligned field of a map value, which other CPUs may be writing.
    let before = unsafe { core::ptr::read_volatile(second) };
    if before != now && atomic::exchange(second, before, now) {
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(sent, 0) };
    }
    atomic::fetch_add(sent, 1) < limit
}
