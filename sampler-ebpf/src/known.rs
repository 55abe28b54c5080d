//! Stacks that are known: a sample says which one it has, instead of carrying it. See `sampler_common::wire::known`.

use crate::maps;
use aya_ebpf::helpers::bpf_probe_read_user;
use core::ptr::read_volatile;
use sampler_common::limits::KNOWN_WORDS;
use sampler_common::wire::{KNOWN_WAYS, KnownStack, known_set, known_tag};

/// The id of the stack of a call, 0 if it is not known; `space` is a `Space::word`. A function of its own, so that the verifier looks at it apart.
#[inline(never)]
pub fn find(space: u64, function: u64, ip: u64, sp: u64, bp: u64) -> u64 {
    let tag = known_tag(space, function, ip, sp);
    let set = known_set(tag);
    let Some(tags) = maps::KNOWN_TAGS.get_ptr(set) else { return 0 };
    for way in 0..KNOWN_WAYS {
        // SAFETY: a way is less than the set has tags.
        let place = unsafe { tags.cast::<u64>().add(way as usize) };
        // SAFETY: an aligned word of a map value, which the daemon may be writing.
        if unsafe { read_volatile(place) } != tag {
            continue;
        }
        let Some(stack) = maps::KNOWN.get_ptr(set * KNOWN_WAYS + way) else { return 0 };
        // SAFETY: a field of a map value.
        let id = unsafe { read_volatile(&raw const (*stack).id) };
        if is_call(stack, space, function, ip, sp)
            && is_frame(stack, bp)
            && has_words(stack, sp)
            // SAFETY: as above. The same as before: nobody has written meanwhile.
            && id == unsafe { read_volatile(&raw const (*stack).id) }
        {
            return id;
        }
    }
    0
}

#[inline(always)]
fn is_call(stack: *const KnownStack, space: u64, function: u64, ip: u64, sp: u64) -> bool {
    // SAFETY: a field of a map value.
    let call = unsafe { &raw const (*stack).call };
    // SAFETY: a field of it, which the daemon may be writing.
    let known = unsafe { read_volatile(call) };
    known.space.word() == space && known.function == function && known.ip == ip && known.sp == sp
}

#[inline(always)]
fn is_frame(stack: *const KnownStack, bp: u64) -> bool {
    // SAFETY: a field of a map value.
    let known = unsafe { read_volatile(&raw const (*stack).bp) };
    // SAFETY: as above.
    let mask = unsafe { read_volatile(&raw const (*stack).bp_mask) };
    (known ^ bp) & mask == 0
}

/// Whether all words of the stack are what they were.
#[inline(always)]
fn has_words(stack: *const KnownStack, sp: u64) -> bool {
    // SAFETY: fields of a map value.
    let (words, values, places) = unsafe {
        (read_volatile(&raw const (*stack).words), &raw const (*stack).values, &raw const (*stack).places)
    };
    for index in 0..KNOWN_WORDS {
        if index as u64 >= words {
            break;
        }
        // SAFETY: the index is less than the array is long.
        let place = unsafe { places.cast::<u16>().add(index) };
        // SAFETY: as above.
        let value = unsafe { values.cast::<u64>().add(index) };
        // SAFETY: elements of a map value, which the daemon may be writing.
        let (place, value) = unsafe { (read_volatile(place), read_volatile(value)) };
        let address = sp.wrapping_add(u64::from(place) * 8);
        // SAFETY: reads user memory, and may fail.
        if unsafe { bpf_probe_read_user(address as *const u64) } != Ok(value) {
            return false;
        }
    }
    true
}
