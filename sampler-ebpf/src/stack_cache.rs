//! Cached stacks: a sample names a cached stack by its id instead of carrying a copy. See
//! `sampler_common::wire::known`.

use crate::{atomic, maps};
use aya_ebpf::helpers::generated::bpf_probe_read_user as read_user;
use core::ptr::{read_volatile, write_volatile};
use sampler_common::limits::{CACHE_READ_WORDS, CACHED_SPAN_WORDS, MAX_CACHED_SPANS, MAX_CACHED_WORDS};
use sampler_common::wire::{CACHE_WAYS, CacheScratch, CachedSpan, CachedStack, cache_set, cache_tag};

/// Returns the id of the stack of a call, 0 if the stack is not known; `space` is a `Space::word`.
///
/// The CPU's [`CacheScratch`] holds the values to compare, since this program has no stack left for
/// them. If a program that was preempted on this CPU holds the scratch memory, no stack is known.
#[inline(never)]
#[unsafe(export_name = "stack_cache_find")]
pub extern "C" fn find(space: u64, function: u64, ip: u64, sp: u64, bp: u64) -> u64 {
    let tag = cache_tag(space, function, ip, sp);
    if !is_tagged(tag) {
        return 0;
    }
    let Some(scratch) = maps::CACHE_SCRATCH.get_ptr_mut(0) else { return 0 };
    // SAFETY: a field of a map value.
    let taken = unsafe { &raw mut (*scratch).taken };
    if !atomic::exchange(taken, 0, 1) {
        return 0;
    }
    // SAFETY: fields of a map value, which are this program's from now on.
    unsafe {
        (&raw mut (*scratch).call.space).cast::<u64>().write_volatile(space);
        (&raw mut (*scratch).call.function).write_volatile(function);
        (&raw mut (*scratch).call.ip).write_volatile(ip);
        (&raw mut (*scratch).call.sp).write_volatile(sp);
        (&raw mut (*scratch).bp).write_volatile(bp);
    }
    let id = among(tag);
    // SAFETY: as above; the scratch memory is free for another program from now on.
    unsafe { write_volatile(taken, 0) };
    id
}

/// Whether one of the set's stacks has this tag. Most unknown stacks end here.
#[inline(always)]
fn is_tagged(tag: u64) -> bool {
    let Some(tags) = maps::CACHED_TAGS.get_ptr(cache_set(tag)) else { return false };
    // SAFETY: a way is less than the number of tags in a set; aligned words of a map value, which
    // the daemon may be writing.
    (0..CACHE_WAYS as usize).any(|way| unsafe { read_volatile(tags.cast::<u64>().add(way)) } == tag)
}

#[inline(always)]
fn among(tag: u64) -> u64 {
    let set = cache_set(tag);
    let Some(tags) = maps::CACHED_TAGS.get_ptr(set) else { return 0 };
    for way in 0..CACHE_WAYS {
        // SAFETY: a way is less than the number of tags in a set.
        let place = unsafe { tags.cast::<u64>().add(way as usize) };
        // SAFETY: an aligned word of a map value, which the daemon may be writing.
        if unsafe { read_volatile(place) } != tag {
            continue;
        }
        match compared(set * CACHE_WAYS + way) {
            0 => {}
            id => return id,
        }
    }
    0
}

/// Returns the id of the cached stack at `index` if it equals the stack in the scratch, else 0.
#[inline(never)]
#[unsafe(export_name = "stack_cache_compared")]
extern "C" fn compared(index: u32) -> u64 {
    let Some(stack) = maps::CACHED_STACKS.get_ptr(index) else { return 0 };
    let Some(scratch) = maps::CACHE_SCRATCH.get_ptr_mut(0) else { return 0 };
    // SAFETY: a field of a map value.
    let id = unsafe { read_volatile(&raw const (*stack).id) };
    let has_it = is_call(stack, scratch) && read(stack, scratch) && is_same(stack, scratch);
    // SAFETY: as above. An unchanged id means that the daemon has not written meanwhile.
    let is_unchanged = id == unsafe { read_volatile(&raw const (*stack).id) };
    if has_it && is_unchanged { id } else { 0 }
}

/// Whether the call is the cached stack's call, and the frame pointer is equal where the frame
/// pointer matters.
#[inline(always)]
fn is_call(stack: *const CachedStack, scratch: *const CacheScratch) -> bool {
    // SAFETY: fields of map values, which the daemon may be writing.
    let (known, call) = unsafe {
        (read_volatile(&raw const (*stack).call), read_volatile(&raw const (*scratch).call))
    };
    let is_call = known.space.word() == call.space.word()
        && (known.function, known.ip, known.sp) == (call.function, call.ip, call.sp);
    // SAFETY: as above.
    let (known, bp, mask) = unsafe {
        (
            read_volatile(&raw const (*stack).bp),
            read_volatile(&raw const (*scratch).bp),
            read_volatile(&raw const (*stack).bp_mask),
        )
    };
    is_call && (known ^ bp) & mask == 0
}

/// Reads the spans of a stack into the scratch, one behind the other. Returns whether all could be
/// read.
#[inline(always)]
fn read(stack: *const CachedStack, scratch: *mut CacheScratch) -> bool {
    // SAFETY: fields of map values.
    let (spans, span, words) = unsafe {
        (
            &raw const (*stack).spans,
            (&raw const (*stack).span).cast::<CachedSpan>(),
            (&raw mut (*scratch).words).cast::<u64>(),
        )
    };
    let mut at = 0u32;
    for index in 0..MAX_CACHED_SPANS {
        // SAFETY: as above. The bound is read anew: from the minimum of two bounds the verifier
        // would not see that the index stays within. The bound is read as a word: with half a word
        // the verifier checks 5 % more instructions.
        if index as u64 >= u64::from(unsafe { read_volatile(spans) }) {
            break;
        }
        // SAFETY: the index is less than the array's length; the daemon may be writing the array.
        let CachedSpan { first, words: count } = unsafe { read_volatile(span.add(index)) };
        let count = u32::from(count) & CACHED_SPAN_WORDS as u32;
        // SAFETY: the index is masked to `CACHE_READ_WORDS`, and behind these words is room for a
        // whole span.
        let target = unsafe { words.add(at as usize & (CACHE_READ_WORDS - 1)) };
        // SAFETY: a field of a map value.
        let sp = unsafe { read_volatile(&raw const (*scratch).call.sp) };
        let source = sp.wrapping_add(u64::from(first) * 8);
        // SAFETY: reads user memory, and may fail; the target has room.
        if unsafe { read_user(target.cast(), count * 8, source as *const _) } != 0 {
            return false;
        }
        at += count;
    }
    true
}

/// Whether the words in the scratch equal the words of the cached stack.
#[inline(always)]
fn is_same(stack: *const CachedStack, scratch: *const CacheScratch) -> bool {
    // SAFETY: fields of map values.
    let (words, values, places, read) = unsafe {
        (
            &raw const (*stack).words,
            (&raw const (*stack).values).cast::<u64>(),
            (&raw const (*stack).places).cast::<u16>(),
            (&raw const (*scratch).words).cast::<u64>(),
        )
    };
    for index in 0..MAX_CACHED_WORDS {
        // SAFETY: as above. The bound is read anew for the verifier, as in `read`.
        if index as u64 >= u64::from(unsafe { read_volatile(words) }) {
            break;
        }
        // SAFETY: the index is less than the arrays' lengths; the daemon may be writing them.
        let (place, value) =
            unsafe { (read_volatile(places.add(index)), read_volatile(values.add(index))) };
        // SAFETY: the index is masked to the words that `read` fills.
        if unsafe { read_volatile(read.add(usize::from(place) & (CACHE_READ_WORDS - 1))) } != value
        {
            return false;
        }
    }
    true
}
