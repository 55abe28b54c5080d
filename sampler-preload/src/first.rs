//! The process's own `malloc`, `realloc` and `free`: those that a call from any of its files
//! reaches, the first in link order.
//!
//! They are ours, unless an allocator is in front of us: in the program itself, or preloaded before
//! us. `reallocarray`, and functions without a counterpart behind us (`cfree`, `operator new`),
//! call the process's own functions, as those of libc do. A block of the allocator in front of us
//! is unknown to the allocator behind us.
//!
//! The functions are looked up like all others. A relocation would lead to our own functions, since
//! we are linked with -Bsymbolic.

use crate::boot::boot;
use crate::next::{Files, weak};
use crate::next_allocator::{Freeing, Moving, Sized, Storing};
use crate::{entry, release};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `ENOMEM`
const NO_MEMORY: c_int = 12;

macro_rules! functions {
    ($($place:ident, $name:ident: $kind:ty = $symbol:literal, $own:path, ($($parameter:ident: $of:ty),*) -> $result:ty;)*) => {
        $(
            static $place: AtomicPtr<c_void> = AtomicPtr::new({
                unsafe extern "C" fn find($($parameter: $of),*) -> $result {
                    boot();
                    // SAFETY: forwards the call.
                    unsafe { $name()($($parameter),*) }
                }
                find as $kind as *mut c_void
            });

            #[doc = stringify!($name)]
            pub(crate) fn $name() -> $kind {
                // SAFETY: only functions of this very type are ever stored there.
                unsafe { core::mem::transmute::<*mut c_void, $kind>($place.load(Relaxed)) }
            }
        )*

        /// Looks the functions up; those that are not found are replaced by ours.
        pub(crate) fn take(files: &Files) {
            $({
                let found = files.first($symbol);
                let own = $own as $kind as *mut c_void;
                $place.store(if found.is_null() { own } else { found }, Relaxed);
            })*
        }
    };
}

functions! {
    MALLOC, malloc: Sized = c"malloc", entry::malloc, (size: usize) -> *mut c_void;
    REALLOC, realloc: Moving = c"realloc", entry::realloc, (block: *mut c_void, size: usize) -> *mut c_void;
    POSIX_MEMALIGN, posix_memalign: Storing = c"posix_memalign", entry::posix_memalign, (place: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    FREE, free: Freeing = c"free", release::free, (block: *mut c_void) -> ();
}

/// Returns null and sets `errno` to `ENOMEM`.
pub(crate) fn no_memory() -> *mut c_void {
    let place = weak!("__errno_location");
    if place != 0 {
        // SAFETY: the function of that name is of this type in glibc and musl.
        let place =
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> *mut c_int>(place) };
        // SAFETY: it has no conditions.
        let errno = unsafe { place() };
        // SAFETY: this thread's own.
        unsafe { errno.write(NO_MEMORY) };
    }
    core::ptr::null_mut()
}
