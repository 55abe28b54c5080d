//! Words of the running process's own memory that count its work: where they are the daemon has found out.

use aya_ebpf::helpers::bpf_probe_read_user;
use sampler_common::wire::{Duty, UNKNOWN_TALLY, WORDS};

/// Writes what they are now to as many places behind `to`, a field of the same map value; [`UNKNOWN_TALLY`] for one whose page is not there.
#[inline(always)]
pub fn read(duty: *const Duty, to: *mut u64) {
    // SAFETY: a field of a map value.
    let words = unsafe { &raw const (*duty).words }.cast::<u64>();
    for number in 0..WORDS {
        // SAFETY: the index is less than the array's length; the daemon may be writing it, hence volatile.
        let at = unsafe { core::ptr::read_volatile(words.add(number)) };
        let word = if at == 0 { UNKNOWN_TALLY } else { word(at) };
        // SAFETY: as above; the daemon may be reading it.
        unsafe { core::ptr::write_volatile(to.add(number), word) };
    }
}

/// None of them is known: until a window ends by itself.
#[inline(always)]
pub fn forget(to: *mut u64) {
    for number in 0..WORDS {
        // SAFETY: the index is less than the array's length; the daemon may be reading it, hence volatile.
        unsafe { core::ptr::write_volatile(to.add(number), UNKNOWN_TALLY) };
    }
}

/// What the word there is now; [`UNKNOWN_TALLY`]: it is not there. Its lower half is enough: nothing is counted four thousand million times between two looks.
#[inline(always)]
pub fn word(at: u64) -> u64 {
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_user(at as *const u32) }.map_or(UNKNOWN_TALLY, u64::from)
}
