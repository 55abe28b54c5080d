//! The functions that free a block, as the process calls them (`free`, `cfree`, `free_sized` …).
//! [`crate::entry`] has the allocating functions, in the same structure.

use crate::filter::{FACTOR, SHIFT};
use crate::next_allocator::NEXT_ALLOCATOR;
use crate::sample::{self, FILTER};
use crate::settings::{SETTINGS, Settings};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;

/// A function that ends a block.
macro_rules! release {
    ($(#[$doc:meta])* $name:ident, $slow:ident, $export:literal, ($($parameter:ident),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of that name in C.
        #[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = concat!(".text.hot.", stringify!($name))))]
        pub unsafe extern "C" fn $name(block: *mut c_void $(, $parameter: usize)*) {
            if FILTER.may_hold(block as usize) {
                // SAFETY: the same call.
                return unsafe { $slow(block $(, $parameter)*) };
            }
            // SAFETY: forwards the call.
            unsafe { NEXT_ALLOCATOR.$name()(block $(, $parameter)*) }
        }

        sampled! { $name, $slow, $export, ($($parameter),*) }
    };
}

/// The cold function, for a block that may be a sampled one.
macro_rules! sampled {
    ($name:ident, $slow:ident, $export:literal, ($($parameter:ident),*)) => {
        #[cold]
        #[inline(never)]
        #[cfg_attr(feature = "library", unsafe(export_name = $export))]
        unsafe extern "C" fn $slow(block: *mut c_void $(, $parameter: usize)*) {
            // The sample ends first: afterwards the allocator may give the block's address to
            // another thread.
            sample::end(block as usize);
            // SAFETY: forwards the call.
            unsafe { NEXT_ALLOCATOR.$name()(block $(, $parameter)*) }
        }
    };
}

/// free: [`crate::filter::Filter::may_hold`], and a jump through a pointer. The compiler would use
/// two instructions for the compare, and two for the jump.
///
/// # Safety
/// As for the function of that name in C.
#[unsafe(naked)]
#[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = ".text.hot.free"))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "imul eax, edi, {factor}",
        "shr eax, {shift}",
        "lea rcx, [rip + {filter}]",
        "cmp byte ptr [rcx + rax], 0",
        "jne {slow}",
        "jmp qword ptr [rip + {settings} + {next}]",
        ".cfi_endproc",
        factor = const FACTOR,
        shift = const SHIFT,
        filter = sym FILTER,
        slow = sym free_sampled,
        settings = sym SETTINGS,
        next = const offset_of!(Settings, usual.free),
    )
}

sampled! { free, free_sampled, "__sampler_preload_free", () }
release! {
    /// cfree
    cfree, cfree_sampled, "__sampler_preload_cfree", ()
}
release! {
    /// `free_sized`
    free_sized, free_sized_sampled, "__sampler_preload_free_sized", (size)
}
release! {
    /// `free_aligned_sized`
    free_aligned_sized, free_aligned_sized_sampled, "__sampler_preload_free_aligned_sized", (alignment, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::malloc;
    use sampler_common::sampling::Rate;

    #[test]
    fn free_removes_sampled_blocks_from_the_filter() {
        for size in (1..20_000).step_by(61) {
            // SAFETY: it has no conditions.
            let block = unsafe { malloc(size) };
            assert!(!FILTER.may_hold(block as usize), "{block:?}");
            sample::begin(block as usize, size, Rate::ALWAYS);
            assert!(FILTER.may_hold(block as usize), "{block:?}");
            // SAFETY: just allocated.
            unsafe { free(block) };
            assert!(!FILTER.may_hold(block as usize), "{block:?}");
        }
    }
}
