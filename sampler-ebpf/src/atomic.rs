//! Atomic operations on map memory.
//!
//! `core::sync::atomic` has no fetch operations on this target. LLVM's backend miscompiles the
//! relaxed intrinsics whose result is used: it drops the fetch and takes the addend for the old
//! value.
//! Every operation here is sequentially consistent. The build checks the object for the
//! miscompilation.

use crate::registers::Call;
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_or, atomic_xadd, atomic_xchg};
use sampler_common::sampling;

/// Adds to a counter, without returning the old value.
#[inline(always)]
pub fn add(target: *mut u64, amount: u64) {
    fetch_add(target, amount);
}

/// Adds and returns the old value.
#[inline(always)]
pub fn fetch_add(target: *mut u64, amount: u64) -> u64 {
    // SAFETY: callers pass pointers into map values, which the verifier has bounds-checked.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(target, amount) }
}

/// Sets bits.
#[inline(always)]
pub fn set(target: *mut u64, bits: u64) {
    // SAFETY: as in `fetch_add`.
    unsafe { atomic_or::<u64, u64, { AtomicOrdering::SeqCst }>(target, bits) };
}

/// Adds to a 32-bit counter and returns the old value.
#[inline(always)]
pub fn fetch_add_u32(target: *mut u32, amount: u32) -> u32 {
    // SAFETY: as in `fetch_add`.
    unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(target, amount) }
}

/// Stores `new` if the value is `expected`. Returns whether it was.
#[inline(always)]
pub fn exchange(target: *mut u64, expected: u64, new: u64) -> bool {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: as in `fetch_add`.
    unsafe { atomic_cxchg::<u64, ORDER, ORDER>(target, expected, new).1 }
}

/// [`exchange`] for 32 bits.
#[inline(always)]
pub fn exchange_u32(target: *mut u32, expected: u32, new: u32) -> bool {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: as in `fetch_add`.
    unsafe { atomic_cxchg::<u32, ORDER, ORDER>(target, expected, new).1 }
}

/// [`set`] for 32 bits.
#[inline(always)]
pub fn or_u32(target: *mut u32, bits: u32) {
    // SAFETY: as in `fetch_add`.
    unsafe { atomic_or::<u32, u32, { AtomicOrdering::SeqCst }>(target, bits) };
}

/// The countdown's cell in map memory.
pub struct MapCell(pub *mut i64);

impl sampling::Cell for MapCell {
    #[inline(always)]
    fn fetch_sub(&self, amount: i64) -> i64 {
        fetch_add(self.0.cast(), amount.wrapping_neg() as u64) as i64
    }

    #[inline(always)]
    fn swap(&self, value: i64) -> i64 {
        // SAFETY: as in `fetch_add`.
        unsafe {
            atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(self.0.cast(), value as u64) as i64
        }
    }
}

/// The kernel's random number generator; two 32-bit draws make a word.
pub struct KernelRandom<'c>(pub &'c Call);

#[inline(always)]
fn random() -> u64 {
    // SAFETY: the helper has no preconditions.
    let high = unsafe { aya_ebpf::helpers::bpf_get_prandom_u32() } as u64;
    // SAFETY: as above.
    let low = unsafe { aya_ebpf::helpers::bpf_get_prandom_u32() } as u64;
    high << 32 | low
}

/// A random distance to the next sampled byte.
#[inline(never)]
#[unsafe(export_name = "random_distance")]
extern "C" fn distance() -> u64 {
    sampling::draw(random())
}

impl sampling::Random for KernelRandom<'_> {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        random()
    }

    #[inline(always)]
    fn distance(&mut self) -> u64 {
        distance()
    }

    #[inline(always)]
    fn opaque(&mut self, value: u64) -> u64 {
        self.0.unknown(value)
    }
}
