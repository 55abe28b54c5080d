//! The process's own `realloc` and `free`: those that a call from any of its files reaches, the first in link order.
//!
//! They are ours, unless an allocator stands in front of us: in the program itself, or preloaded before us. What the family's lesser members do without one
//! of their own behind us they do by these, as libc's do: a block of that allocator's means nothing to the one behind us.
//!
//! They are looked for as all others: an entry of our own for the loader to fill in would lead to ours, since we are linked with -Bsymbolic.

use crate::boot::boot;
use crate::next::{Files, weak};
use crate::real::{Freeing, Moving};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `ENOMEM`
const NO_MEMORY: c_int = 12;

static REALLOC: AtomicPtr<c_void> = AtomicPtr::new(find_realloc as Moving as *mut c_void);
static FREE: AtomicPtr<c_void> = AtomicPtr::new(find_free as Freeing as *mut c_void);

/// `realloc`
pub(crate) fn realloc() -> Moving {
    // SAFETY: only functions of this very type are ever stored there.
    unsafe { core::mem::transmute::<*mut c_void, Moving>(REALLOC.load(Relaxed)) }
}

/// `free`
pub(crate) fn free() -> Freeing {
    // SAFETY: as above.
    unsafe { core::mem::transmute::<*mut c_void, Freeing>(FREE.load(Relaxed)) }
}

/// Takes what is there; where nothing is found, ours.
pub(crate) fn take(files: &Files) {
    let or = |found: *mut c_void, own: *mut c_void| if found.is_null() { own } else { found };
    let own = (crate::entry::realloc as Moving, crate::release::free as Freeing);
    REALLOC.store(or(files.first(b"realloc"), own.0 as *mut c_void), Relaxed);
    FREE.store(or(files.first(b"free"), own.1 as *mut c_void), Relaxed);
}

unsafe extern "C" fn find_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { realloc()(block, size) }
}

unsafe extern "C" fn find_free(block: *mut c_void) {
    boot();
    // SAFETY: forwards the call.
    unsafe { free()(block) }
}

/// Null, and `errno` says that there is no memory.
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
