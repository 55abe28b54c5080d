//! The allocating half of the malloc family as the process calls it; [`crate::release`] has the
//! freeing half.
//!
//! Each function exists twice. The hot one has what nearly every call needs: the countdown or a
//! filter look-up, and the allocator's own function. The cold one has the rest. The probes are in
//! the cold functions, one frame in front of the caller's frame.

use crate::first;
use crate::next_allocator::NEXT_ALLOCATOR;
use crate::sample::{self, FILTER, charge, decide};
use crate::settings::{SETTINGS, Settings};
use crate::thread::Charged;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;

// The hot functions are placed in this order in one page, and each begins at a cache line. The
// first section's alignment is larger than all four functions together. `.p2align` raises a
// section's alignment even if it skips no bytes, as behind an existing function.
#[cfg(feature = "library")]
core::arch::global_asm!(
    ".pushsection .text.hot.free, \"ax\", @progbits",
    ".p2align 9, , 1",
    ".popsection",
    ".pushsection .text.hot.malloc, \"ax\", @progbits",
    ".p2align 6, , 1",
    ".popsection",
    ".pushsection .text.hot.calloc, \"ax\", @progbits",
    ".p2align 6, , 1",
    ".popsection",
    ".pushsection .text.hot.realloc, \"ax\", @progbits",
    ".p2align 6, , 1",
    ".popsection",
);

/// A larger request fails in every allocator (`PTRDIFF_MAX`).
const MAX_REQUEST_BYTES: usize = isize::MAX as usize;

/// An allocation that returns a pointer: `name(parameters) as size of the request`; `slow` handles
/// the few sampled calls.
macro_rules! allocation {
    ($(#[$doc:meta])* $name:ident, $slow:ident, $export:literal, ($($parameter:ident),*), $size:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of that name in C.
        #[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = concat!(".text.hot.", stringify!($name))))]
        pub unsafe extern "C" fn $name($($parameter: usize),*) -> *mut c_void {
            match $size {
                Some(size) => match charge(size) {
                    // SAFETY: forwards the call.
                    None => unsafe { NEXT_ALLOCATOR.$name()($($parameter),*) },
                    // SAFETY: the same call.
                    Some(charged) => unsafe { $slow($($parameter,)* charged) },
                },
                // The request fails, and the allocator reports the failure.
                // SAFETY: forwards the call.
                None => unsafe { NEXT_ALLOCATOR.$name()($($parameter),*) },
            }
        }

        sampled! { $name, $slow, $export, ($($parameter),*), $size }
    };
}

/// The cold function of an allocation.
macro_rules! sampled {
    ($name:ident, $slow:ident, $export:literal, ($($parameter:ident),*), $size:expr) => {
        #[cold]
        #[inline(never)]
        #[cfg_attr(feature = "library", unsafe(export_name = $export))]
        unsafe extern "C" fn $slow($($parameter: usize,)* charged: Charged) -> *mut c_void {
            let size = $size.unwrap_or(0);
            let rate = decide(size, charged);
            // SAFETY: forwards the call.
            let block = unsafe { NEXT_ALLOCATOR.$name()($($parameter),*) };
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

/// [`charge`], and a jump through the pointer at `next` of `to`: nine instructions in one cache
/// line. The compiler would make eleven.
///
/// If the result of [`charge`] is not `None`, the code runs the instructions `before` and jumps to
/// `slow`, with the result in the register `charged`.
macro_rules! charged {
    ($settings:path, $to:path, $next:expr, $slow:path, $charged:literal $(, $before:literal)*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, qword ptr [rip + {settings} + {rate}]",
            "test rdi, rdi",
            "jle 2f",
            "imul rax, rdi",
            // Branches that are not taken cost as much as all other instructions here.
            "cmovo rax, qword ptr [rip + {settings} + {certain}]",
            "mov rcx, qword ptr [rip + sampler_preload_thread@GOTTPOFF]",
            "add qword ptr fs:[rcx], rax",
            "jge 3f",
            "jmp qword ptr [rip + {to} + {next}]",
            "2:",
            concat!("mov ", $charged, ", {not}"),
            "jmp 4f",
            "3:",
            // The carry flag: whether the countdown ends.
            concat!("sbb ", $charged, ", ", $charged),
            concat!("neg ", $charged),
            "4:",
            $($before,)*
            "jmp {slow}",
            ".cfi_endproc",
            settings = sym $settings,
            rate = const core::mem::offset_of!(crate::settings::Settings, rate),
            certain = const core::mem::offset_of!(crate::settings::Settings, certain),
            to = sym $to,
            next = const $next,
            not = const crate::thread::Charged::Not as u64,
            slow = sym $slow,
        )
    };
}
pub(crate) use charged;

const _: () = assert!(Charged::Idle as u64 == 0 && Charged::Ends as u64 == 1);

/// malloc
///
/// # Safety
/// As for the function of that name in C.
#[unsafe(naked)]
#[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = ".text.hot.malloc"))]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    charged!(SETTINGS, SETTINGS, offset_of!(Settings, usual.malloc), malloc_sampled, "esi")
}

sampled! { malloc, malloc_sampled, "__sampler_preload_malloc", (size), whole(size) }
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
/// As for the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    match charge(size) {
        // SAFETY: forwards the call.
        None => unsafe { NEXT_ALLOCATOR.posix_memalign()(place, alignment, size) },
        // SAFETY: the same call.
        Some(charged) => unsafe { posix_memalign_sampled(place, alignment, size, charged) },
    }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_posix_memalign"))]
unsafe extern "C" fn posix_memalign_sampled(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
    charged: Charged,
) -> c_int {
    let rate = decide(size, charged);
    // SAFETY: forwards the call.
    let error = unsafe { NEXT_ALLOCATOR.posix_memalign()(place, alignment, size) };
    if let Some(rate) = rate {
        let block = match error {
            // SAFETY: the allocator has just written it.
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
/// As for the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = ".text.hot.realloc"))]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let charged = match charge(size) {
        Some(charged) => charged,
        None if FILTER.may_hold(block as usize) => Charged::RunsOn,
        // SAFETY: forwards the call.
        None => return unsafe { NEXT_ALLOCATOR.realloc()(block, size) },
    };
    // SAFETY: the same call.
    unsafe { realloc_sampled(block, size, charged) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_realloc"))]
unsafe extern "C" fn realloc_sampled(
    block: *mut c_void,
    size: usize,
    charged: Charged,
) -> *mut c_void {
    let rate = decide(size, charged);
    if size > MAX_REQUEST_BYTES {
        if rate.is_some() {
            sample::failed();
        }
        // SAFETY: forwards the call, which fails and leaves the block as it is.
        return unsafe { NEXT_ALLOCATOR.realloc()(block, size) };
    }
    let of = sample::begin_move(block as usize);
    // SAFETY: forwards the call.
    let moved = unsafe { NEXT_ALLOCATOR.realloc()(block, size) };
    if let Some(of) = of {
        // With a size of 0 the block is freed, whatever `realloc` returns.
        sample::end_move(of, block as usize, moved.is_null() && size != 0);
    }
    if let Some(rate) = rate {
        sample::begin(moved as usize, size, rate);
    }
    moved
}

/// reallocarray: the process's `realloc` of the product, as in every libc. The caller's `malloc`
/// may be that of an allocator in front of us.
///
/// # Safety
/// As for the function of that name in C.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match both(count, size) {
        // SAFETY: the caller's conditions are those of `realloc`.
        Some(bytes) => unsafe { first::realloc()(block, bytes) },
        // The product is not passed on: an allocator that adds to the size could wrap around to a
        // small one.
        None => first::no_memory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next_allocator::{Sized, Usual};
    use crate::sample::charge_at;
    use crate::thread::Countdown;
    use core::sync::atomic::Ordering::Relaxed;
    use sampler_common::sampling::rate::HAZARD_CERTAIN;
    use sampler_common::sampling::{Cell as _, Rate};

    static FOREIGN_SETTINGS: Settings = Settings::new(Usual::first());
    const PASSED_ON: usize = 99;

    unsafe extern "C" fn passed_on(_: usize) -> *mut c_void {
        PASSED_ON as *mut c_void
    }

    unsafe extern "C" fn reported(_: usize, charged: Charged) -> *mut c_void {
        charged as usize as *mut c_void
    }

    #[unsafe(naked)]
    unsafe extern "C" fn charging(size: usize) -> *mut c_void {
        charged!(
            FOREIGN_SETTINGS,
            FOREIGN_SETTINGS,
            offset_of!(Settings, usual.malloc),
            reported,
            "esi"
        )
    }

    /// The result of a request, and the countdown that is left then.
    fn after(left: i64, charge: impl Fn() -> usize) -> (usize, i64) {
        Countdown.swap(left);
        (charge(), Countdown.swap(0))
    }

    #[test]
    fn malloc_charges_as_the_other_functions() {
        const SIZES: [usize; 11] =
            [0, 1, 2, 48, 4096, 1 << 18, 1 << 33, 1 << 40, 1 << 62, 1 << 63, usize::MAX];
        FOREIGN_SETTINGS.usual.malloc.store(passed_on as Sized as *mut c_void, Relaxed);
        let intervals = [1, 2, 3, 8, 4095, 4096, 1 << 19, 1 << 32];
        let rates = intervals.map(|interval| Rate::from_interval(interval).unwrap().raw());
        for rate in rates.into_iter().chain([0]) {
            FOREIGN_SETTINGS.rate.store(rate, Relaxed);
            for size in SIZES {
                let hazard = Rate::from_raw(rate).charge(size as u64) as i64;
                let certain = HAZARD_CERTAIN as i64;
                let near = [hazard - 1, hazard, hazard + 1];
                for left in [i64::MIN / 4, -certain, -1, 0, 1, certain].into_iter().chain(near) {
                    // SAFETY: it allocates nothing.
                    let theirs = after(left, || unsafe { charging(size) } as usize);
                    let charge = || charge_at(rate, size).map_or(PASSED_ON, |of| of as usize);
                    assert_eq!(theirs, after(left, charge), "{size} at {rate}, {left} left");
                }
            }
        }
    }
}
