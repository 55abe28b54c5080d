//! The functions of the malloc family that end a block, as the process calls them: built as those of [`crate::entry`].

use crate::real::REAL;
use crate::sample::{self, FILTER};
use core::ffi::c_void;

/// A function that ends a block.
macro_rules! release {
    ($(#[$doc:meta])* $name:ident, $slow:ident, $export:literal, ($($parameter:ident),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the function of that name in C.
        #[cfg_attr(feature = "library", unsafe(no_mangle), unsafe(link_section = concat!(".text.hot.", stringify!($name))))]
        pub unsafe extern "C" fn $name(block: *mut c_void $(, $parameter: usize)*) {
            if FILTER.may_hold(block as usize) {
                // SAFETY: the same call.
                return unsafe { $slow(block $(, $parameter)*) };
            }
            // SAFETY: forwards the call.
            unsafe { REAL.$name()(block $(, $parameter)*) }
        }

        #[cold]
        #[inline(never)]
        #[cfg_attr(feature = "library", unsafe(export_name = $export))]
        unsafe extern "C" fn $slow(block: *mut c_void $(, $parameter: usize)*) {
            // Before the block is anybody else's.
            sample::end(block as usize);
            // SAFETY: forwards the call.
            unsafe { REAL.$name()(block $(, $parameter)*) }
        }
    };
}

release! {
    /// free
    free, free_sampled, "__sampler_preload_free", ()
}
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
