//! The words that a loader fills when it maps this library into a running process
//! (`sampler-inject`).
//!
//! No code of this library runs then: no constructor, no [`crate::boot`], no `dlsym`, no
//! `pthread_atfork`. The loader applies the relocations, and gives the thread-local words an offset
//! whose memory is zero in every thread. It fills the words of [`WORDS`] before any call can
//! arrive. All weak symbols may stay 0.
//!
//! In a process without injection (`LD_PRELOAD`) no code reads [`WORDS`].

use crate::boot::{IS_DONE, SEED};
use crate::fork::{DETECTION, MARK};
use crate::heap::SLOTS;
use crate::next_allocator::{RARE_FUNCTIONS, USUAL_FUNCTIONS};
use crate::operators::OPERATORS;
use crate::sample::{FILTER, TABLE};
use crate::settings::SETTINGS;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// "SMPLINJ2": the layout of [`LoaderWords`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"SMPLINJ2");

/// Bytes of a function's name, padded with zeros.
pub const NAME_BYTES: usize = 40;

/// One function of the malloc family, an operator of C++, or a slot of [`crate::heap`]. The
/// library's dynamic symbol of the same name is the function that a hook leads to.
#[repr(C)]
pub struct Function {
    name: [u8; NAME_BYTES],
    /// Pointer through which calls are forwarded: to the allocator's own function, or to
    /// `trampoline`.
    next: *const AtomicPtr<c_void>,
    /// Pointer through which `trampoline` forwards: to the allocator's own function, if that may
    /// call another function of the family.
    marked: *const AtomicPtr<c_void>,
    /// A function that sets a mark and calls the function at `marked` ([`crate::inside`]). For an
    /// operator: a function that samples before the one at `marked`.
    trampoline: unsafe extern "C" fn(),
}

impl Function {
    pub(crate) const fn new(
        name: &str,
        next: *const AtomicPtr<c_void>,
        marked: *const AtomicPtr<c_void>,
        trampoline: unsafe extern "C" fn(),
    ) -> Function {
        let mut padded = [0; NAME_BYTES];
        let mut at = 0;
        while at < name.len() {
            padded[at] = name.as_bytes()[at];
            at += 1;
        }
        Function { name: padded, next, marked, trampoline }
    }
}

/// A memory area of this library.
#[repr(C)]
pub struct Area {
    start: *const c_void,
    bytes: u64,
}

/// All words, and what else a loader has to know.
#[repr(C)]
pub struct LoaderWords {
    magic: u64,
    /// Bytes of this structure.
    bytes: u64,
    /// The rate in force and the rate that was asked for, in raw units of
    /// [`sampler_common::sampling::Rate`]. The loader sets both to the same rate.
    rate: *const AtomicU64,
    requested: *const AtomicU64,
    /// `__vdso_clock_gettime`, or 0.
    clock: *const AtomicPtr<c_void>,
    /// A random number that is not 0.
    seed: *const AtomicU64,
    /// Set to 1, a byte: no look-up of an allocator takes place.
    is_done: *const AtomicBool,
    /// Bits: 1 (the kernel clears the mark in children), and 2 if the processor has `rdrand`.
    detection: *const AtomicU64,
    /// Set to 1. The mark is on a page of its own, which a forked child must get as zeros
    /// (`MADV_WIPEONFORK`).
    mark: *const AtomicU64,
    /// Areas that have to be zero before the first call: the filter and the table of held samples.
    areas: [Area; 2],
    usual: [Function; USUAL_FUNCTIONS.len()],
    rare: [Function; RARE_FUNCTIONS.len()],
    operators: [Function; OPERATORS.len()],
    heap: [Function; SLOTS.len()],
}

// SAFETY: only addresses, which do not change.
unsafe impl Sync for LoaderWords {}

/// The one table.
#[cfg_attr(feature = "library", used, unsafe(export_name = "sampler_preload_words"))]
pub static WORDS: LoaderWords = LoaderWords {
    magic: MAGIC,
    bytes: size_of::<LoaderWords>() as u64,
    rate: &raw const SETTINGS.rate,
    requested: &raw const SETTINGS.requested,
    clock: &raw const SETTINGS.clock,
    seed: &raw const SEED,
    is_done: &raw const IS_DONE,
    detection: &raw const DETECTION,
    mark: &raw const MARK.word,
    areas: [
        Area { start: (&raw const FILTER).cast(), bytes: size_of_val(&FILTER) as u64 },
        Area { start: (&raw const TABLE).cast(), bytes: size_of_val(&TABLE) as u64 },
    ],
    usual: USUAL_FUNCTIONS,
    rare: RARE_FUNCTIONS,
    operators: OPERATORS,
    heap: SLOTS,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next_allocator::NEXT_ALLOCATOR;
    use core::sync::atomic::Ordering::Relaxed;
    use std::collections::HashSet;

    fn functions() -> impl Iterator<Item = &'static Function> {
        WORDS.usual.iter().chain(&WORDS.rare).chain(&WORDS.operators).chain(&WORDS.heap)
    }

    fn name(function: &Function) -> &str {
        std::str::from_utf8(&function.name).unwrap().trim_end_matches('\0')
    }

    #[test]
    fn every_function_has_words_of_its_own() {
        let words = functions()
            .flat_map(|of| [of.next as usize, of.marked as usize, of.trampoline as usize]);
        assert_eq!(words.collect::<HashSet<_>>().len(), 3 * functions().count());
        let names: HashSet<&str> = functions().map(name).collect();
        assert!(names.len() == functions().count() && names.contains("free_aligned_sized"));
    }

    /// A function that a loader writes into a word is the one that the library calls.
    #[test]
    fn calls_go_to_the_function_in_a_filled_word() {
        unsafe extern "C" fn theirs(_: usize) -> *mut c_void {
            core::ptr::null_mut()
        }
        let pvalloc = functions().find(|function| name(function) == "pvalloc").unwrap();
        // SAFETY: a static of this library.
        let next = unsafe { &*pvalloc.next };
        let before = next.swap(theirs as crate::next_allocator::Sized as *mut c_void, Relaxed);
        let now = NEXT_ALLOCATOR.pvalloc() as usize;
        next.store(before, Relaxed);
        assert_eq!(now, theirs as *const () as usize);
    }

    #[test]
    fn the_fork_mark_fills_its_page() {
        let start = WORDS.mark as usize;
        assert_eq!((start % 4096, size_of::<crate::fork::Mark>()), (0, 4096));
    }
}
