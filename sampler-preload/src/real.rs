//! The allocator behind us: where its functions are.
//!
//! Each pointer leads to a function that looks for all of them ([`crate::boot`]) until that has been done, so that nobody who
//! forwards a call has to ask whether it has.

use crate::{boot, first};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `void *malloc(size_t)`, `valloc`, `pvalloc`
pub type Sized = unsafe extern "C" fn(usize) -> *mut c_void;
/// `void *calloc(size_t, size_t)`, `memalign`, `aligned_alloc`
pub type Paired = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// `void *realloc(void *, size_t)`
pub type Moving = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// `int posix_memalign(void **, size_t, size_t)`
pub type Storing = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
/// `void free(void *)`, `cfree`
pub type Freeing = unsafe extern "C" fn(*mut c_void);
/// `void free_sized(void *, size_t)`
pub type FreeingSized = unsafe extern "C" fn(*mut c_void, usize);
/// `void free_aligned_sized(void *, size_t, size_t)`
pub type FreeingAligned = unsafe extern "C" fn(*mut c_void, usize, usize);

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $symbol:literal, $first:path, $without:path;)*) => {
        /// The pointers.
        #[repr(C, align(64))]
        pub struct Real { $($name: AtomicPtr<c_void>,)* }

        /// The one set of pointers.
        pub static REAL: Real = Real {
            $($name: AtomicPtr::new($first as $kind as *mut c_void),)*
        };

        impl Real {
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name(&self) -> $kind {
                // SAFETY: only functions of this very type are ever stored there.
                unsafe { core::mem::transmute::<*mut c_void, $kind>(self.$name.load(Relaxed)) }
            })*

            /// Takes what `find` has for each name; what it has not is replaced by what does without.
            pub(crate) fn take(&self, find: impl Fn(&CStr) -> *mut c_void) {
                $({
                    let found = find($symbol);
                    let without = $without as $kind as *mut c_void;
                    self.$name.store(if found.is_null() { without } else { found }, Relaxed);
                })*
            }
        }
    };
}

functions! {
    /// malloc
    malloc: Sized = c"malloc", boot::malloc, nothing_sized;
    /// free
    free: Freeing = c"free", boot::free, nothing_freed;
    /// realloc
    realloc: Moving = c"realloc", boot::realloc, nothing_moved;
    /// calloc
    calloc: Paired = c"calloc", boot::calloc, nothing_paired;
    /// `posix_memalign`
    posix_memalign: Storing = c"posix_memalign", boot::posix_memalign, nothing_stored;
    /// `aligned_alloc`
    aligned_alloc: Paired = c"aligned_alloc", boot::aligned_alloc, nothing_paired;
    /// memalign
    memalign: Paired = c"memalign", boot::memalign, nothing_paired;
    /// valloc
    valloc: Sized = c"valloc", boot::valloc, nothing_sized;
    /// pvalloc
    pvalloc: Sized = c"pvalloc", boot::pvalloc, nothing_sized;
    /// cfree
    cfree: Freeing = c"cfree", boot::cfree, plain_free;
    /// `free_sized`
    free_sized: FreeingSized = c"free_sized", boot::free_sized, plain_free_sized;
    /// `free_aligned_sized`
    free_aligned_sized: FreeingAligned = c"free_aligned_sized", boot::free_aligned_sized, plain_free_aligned;
}

/// `ENOMEM`
const NO_MEMORY: c_int = 12;

unsafe extern "C" fn nothing_sized(_: usize) -> *mut c_void {
    core::ptr::null_mut()
}

unsafe extern "C" fn nothing_paired(_: usize, _: usize) -> *mut c_void {
    core::ptr::null_mut()
}

unsafe extern "C" fn nothing_moved(_: *mut c_void, _: usize) -> *mut c_void {
    core::ptr::null_mut()
}

unsafe extern "C" fn nothing_stored(_: *mut *mut c_void, _: usize, _: usize) -> c_int {
    NO_MEMORY
}

unsafe extern "C" fn nothing_freed(_: *mut c_void) {}

unsafe extern "C" fn plain_free(block: *mut c_void) {
    // SAFETY: what the caller may free.
    unsafe { first::free()(block) }
}

unsafe extern "C" fn plain_free_sized(block: *mut c_void, _: usize) {
    // SAFETY: as above; the size is a hint.
    unsafe { first::free()(block) }
}

unsafe extern "C" fn plain_free_aligned(block: *mut c_void, _: usize, _: usize) {
    // SAFETY: as above; alignment and size are hints.
    unsafe { first::free()(block) }
}
