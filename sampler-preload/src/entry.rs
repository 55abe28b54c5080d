//! The allocating half of the malloc family as the process calls it; [`crate::release`] has the other.
//!
//! Each function is there twice: what nearly every call needs (the countdown, or a look into the filter) and the allocator's own; and what
//! the few others need, out of the way. Those are the functions with the probes in them, one frame in front of the caller's.

use crate::first;
use crate::real::REAL;
use crate::sample::{self, FILTER, RUNS_ON, charge, decide};
use core::ffi::{c_int, c_void};

// What nearly every call runs lies together in this order, in one page, each function from a line's beginning: the first one's boundary is
// larger than all four.
#[cfg(feature = "library")]
core::arch::global_asm!(
    ".pushsection .text.hot.malloc, \"ax\", @progbits",
    ".balign 512",
    ".popsection",
    ".pushsection .text.hot.free, \"ax\", @progbits",
    ".balign 64",
    ".popsection",
    ".pushsection .text.hot.calloc, \"ax\", @progbits",
    ".balign 64",
    ".popsection",
    ".pushsection .text.hot.realloc, \"ax\", @progbits",
    ".balign 64",
    ".popsection",
);

/// A larger request fails in every allocator (`PTRDIFF_MAX`).
const LARGEST: usize = isize::MAX as usize;

/// An allocation that returns a pointer: `name(parameters) as size of the request`, `slow` in the few other cases.
macro_rules! allocation {
    ($(#[$doc:meta])* $name:ident, $slow:ident, $export:literal, ($($parameter:ident),*), $size:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the function of that name in C.
        #[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = concat!(".text.hot.", stringify!($name))))]
        pub unsafe extern "C" fn $name($($parameter: usize),*) -> *mut c_void {
            match $size {
                Some(size) => match charge(size) {
                    // SAFETY: forwards the call.
                    None => unsafe { REAL.$name()($($parameter),*) },
                    // SAFETY: the same call.
                    Some(left) => unsafe { $slow($($parameter,)* left) },
                },
                // It fails, and says so as the allocator does.
                // SAFETY: forwards the call.
                None => unsafe { REAL.$name()($($parameter),*) },
            }
        }

        #[cold]
        #[inline(never)]
        #[cfg_attr(feature = "library", unsafe(export_name = $export))]
        unsafe extern "C" fn $slow($($parameter: usize,)* left: u64) -> *mut c_void {
            let size = $size.unwrap_or(0);
            let rate = decide(size, left);
            // SAFETY: forwards the call.
            let block = unsafe { REAL.$name()($($parameter),*) };
            if let Some(rate) = rate {
                sample::begin(block as usize, size, rate);
            }
            block
        }
    };
}

fn whole(size: usize) -> Option<usize> {
    Some(size)
}

fn both(count: usize, size: usize) -> Option<usize> {
    count.checked_mul(size)
}

allocation! {
    /// malloc
    malloc, malloc_sampled, "__sampler_preload_malloc", (size), whole(size)
}
allocation! {
    /// calloc
    calloc, calloc_sampled, "__sampler_preload_calloc", (count, size), both(count, size)
}
allocation! {
    /// `aligned_alloc`
    aligned_alloc, aligned_alloc_sampled, "__sampler_preload_aligned_alloc", (alignment, size), whole(size)
}
allocation! {
    /// memalign
    memalign, memalign_sampled, "__sampler_preload_memalign", (alignment, size), whole(size)
}
allocation! {
    /// valloc
    valloc, valloc_sampled, "__sampler_preload_valloc", (size), whole(size)
}
allocation! {
    /// pvalloc
    pvalloc, pvalloc_sampled, "__sampler_preload_pvalloc", (size), whole(size)
}

/// `posix_memalign`
///
/// # Safety
/// As of the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    match charge(size) {
        // SAFETY: forwards the call.
        None => unsafe { REAL.posix_memalign()(place, alignment, size) },
        // SAFETY: the same call.
        Some(left) => unsafe { posix_memalign_sampled(place, alignment, size, left) },
    }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_posix_memalign"))]
unsafe extern "C" fn posix_memalign_sampled(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
    left: u64,
) -> c_int {
    let rate = decide(size, left);
    // SAFETY: forwards the call.
    let error = unsafe { REAL.posix_memalign()(place, alignment, size) };
    if let Some(rate) = rate {
        let block = match error {
            // SAFETY: it has just been written.
            0 => unsafe { place.read() },
            _ => core::ptr::null_mut(),
        };
        sample::begin(block as usize, size, rate);
    }
    error
}

/// realloc
///
/// # Safety
/// As of the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = ".text.hot.realloc"))]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let left = match charge(size) {
        Some(left) => left,
        None if FILTER.may_hold(block as usize) => RUNS_ON,
        // SAFETY: forwards the call.
        None => return unsafe { REAL.realloc()(block, size) },
    };
    // SAFETY: the same call.
    unsafe { realloc_sampled(block, size, left) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_realloc"))]
unsafe extern "C" fn realloc_sampled(block: *mut c_void, size: usize, left: u64) -> *mut c_void {
    let rate = if left == RUNS_ON { None } else { decide(size, left) };
    if size > LARGEST {
        if rate.is_some() {
            sample::failed();
        }
        // SAFETY: forwards the call, which fails and leaves the block as it is.
        return unsafe { REAL.realloc()(block, size) };
    }
    let of = sample::begin_move(block as usize);
    // SAFETY: forwards the call.
    let moved = unsafe { REAL.realloc()(block, size) };
    if let Some(of) = of {
        // With a size of 0 the block is freed, whatever comes back.
        sample::end_move(of, block as usize, moved.is_null() && size != 0);
    }
    if let Some(rate) = rate {
        sample::begin(moved as usize, size, rate);
    }
    moved
}

/// reallocarray: the process's `realloc` of the product, as it is everywhere. Whoever calls this may have its `malloc` from an allocator in front of us.
///
/// # Safety
/// As of the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match both(count, size) {
        // SAFETY: as the caller has it.
        Some(bytes) => unsafe { first::realloc()(block, bytes) },
        // An allocator that adds something to it would find that it is little.
        None => first::no_memory(),
    }
}
