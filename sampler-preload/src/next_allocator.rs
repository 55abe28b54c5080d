//! The functions of the allocator behind us (the next in link order).
//!
//! Each pointer first leads to a function that looks all of them up ([`crate::boot`]), so that
//! forwarding a call needs no check. After the look-up it leads to the function behind us, or to a
//! trampoline that sets a mark during the call (`inside.rs`). The code that forwards a call jumps
//! there, and need not know which it is.

use crate::inject::Function;
use crate::next::{Files, Found};
use crate::settings::{SETTINGS, Settings};
use crate::thread::marked_call;
use crate::{boot, first};
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Functions that identify allocators whose functions never call each other by an exported name,
/// which would be ours.
///
/// They are glibc, jemalloc, tcmalloc, mimalloc (as compiled for Debian), and another copy of this
/// library. Some of their C++ operators do call exported names, but operators are not checked here.
///
/// The imports of a file would not tell this. glibc and jemalloc import `malloc` for other
/// functions of theirs, and an allocator may reach `malloc` through another file.
const SELF_CONTAINED: [&[u8]; 5] =
    [b"gnu_get_libc_version", b"mallctl", b"tc_malloc", b"mi_malloc", b"__sampler_preload_malloc"];

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

/// The allocator behind us.
#[derive(Clone, Copy, Debug)]
pub struct NextAllocator;

/// The only instance.
pub const NEXT_ALLOCATOR: NextAllocator = NextAllocator;

/// Pointers to some of the allocator's functions: at `$at` (`$words` as a constant expression), and
/// those behind trampolines at `$marked`.
macro_rules! functions {
    (
        $(#[$of:meta])* $set:ident at $at:expr, $words:expr, $marked:ident, $trampolines:ident, $take:ident, $functions:ident;
        $($(#[$doc:meta])* $name:ident: $kind:ty = $symbol:literal, $first:path, $without:path;)*
    ) => {
        $(#[$of])*
        #[repr(C)]
        pub struct $set { $(pub(crate) $name: AtomicPtr<c_void>,)* }

        impl $set {
            /// The initial pointers.
            pub(crate) const fn first() -> $set {
                $set { $($name: AtomicPtr::new($first as $kind as *mut c_void),)* }
            }
        }

        impl NextAllocator {
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name(self) -> $kind {
                // SAFETY: only functions of this very type are ever stored there.
                unsafe { core::mem::transmute::<*mut c_void, $kind>($at.$name.load(Relaxed)) }
            })*
        }

        /// Looks up what is behind us for each name; a missing function is replaced by a fallback.
        fn $take(files: &Files) {
            $({
                let to = match behind(files, $symbol, &$marked.$name) {
                    NextDefinition::Nothing => $without as $kind as *mut c_void,
                    NextDefinition::Plain(function) => function,
                    NextDefinition::Marked => $trampolines::$name as *mut c_void,
                };
                // Stored after the word that the trampoline reads.
                $at.$name.store(to, Release);
            })*
        }

        /// The words that a loader fills in.
        pub(crate) const $functions: [Function; [$(stringify!($name)),*].len()] = [$(Function::new(
            stringify!($name),
            &raw const $words.$name,
            &raw const $marked.$name,
            $trampolines::$name,
        )),*];

        /// Functions that the trampolines forward to.
        static $marked: $set = $set { $($name: AtomicPtr::new(null_mut()),)* };

        /// A trampoline for each function, which calls it with a mark. All parameters stay in their
        /// registers.
        mod $trampolines {
            use super::*;
            $(
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn $name() {
                    naked_asm!(
                        ".cfi_startproc",
                        "mov r11, qword ptr [rip + {functions} + {at}]",
                        "jmp {marked}",
                        ".cfi_endproc",
                        functions = sym $marked,
                        at = const offset_of!($set, $name),
                        marked = sym marked_call,
                    )
                }
            )*
        }
    };
}

functions! {
    /// Pointers to the functions that are called most. They are in [`Settings`], next to the rate.
    Usual at Settings::here().usual, SETTINGS.usual, USUAL_MARKED, usual_trampolines, take_usual, USUAL_FUNCTIONS;
    /// malloc
    malloc: Sized = c"malloc", boot::malloc, nothing_sized;
    /// free
    free: Freeing = c"free", boot::free, nothing_freed;
    /// realloc
    realloc: Moving = c"realloc", boot::realloc, nothing_moved;
    /// calloc
    calloc: Paired = c"calloc", boot::calloc, nothing_paired;
}

/// The only instance.
static RARE: Rare = Rare::first();

functions! {
    /// Pointers to the other functions.
    Rare at RARE, RARE, RARE_MARKED, rare_trampolines, take_rare, RARE_FUNCTIONS;
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

impl NextAllocator {
    /// Looks up all functions.
    pub(crate) fn take(self, files: &Files) {
        take_usual(files);
        take_rare(files);
    }
}

/// The definition behind us for a name.
enum NextDefinition {
    Nothing,
    /// A function that is called directly.
    Plain(*mut c_void),
    /// A function that is called with a mark.
    Marked,
}

/// The definition for `name`; a function that is called with a mark is stored at `marked`.
#[inline(never)]
fn behind(files: &Files, name: &CStr, marked: &AtomicPtr<c_void>) -> NextDefinition {
    match files.found(name) {
        None => NextDefinition::Nothing,
        Some(found) if is_self_contained(&found) => NextDefinition::Plain(found.function),
        Some(found) => {
            marked.store(found.function, Relaxed);
            NextDefinition::Marked
        }
    }
}

fn is_self_contained(found: &Found) -> bool {
    SELF_CONTAINED.iter().any(|name| found.is_beside(name))
}

/// `ENOMEM`
const NO_MEMORY: c_int = 12;

unsafe extern "C" fn nothing_sized(_: usize) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn nothing_paired(_: usize, _: usize) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn nothing_moved(_: *mut c_void, _: usize) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn nothing_stored(_: *mut *mut c_void, _: usize, _: usize) -> c_int {
    NO_MEMORY
}

unsafe extern "C" fn nothing_freed(_: *mut c_void) {}

unsafe extern "C" fn plain_free(block: *mut c_void) {
    // SAFETY: a block that the caller may free.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::is_inside;

    unsafe extern "C" fn allocates(count: usize, size: usize) -> *mut c_void {
        (count * 100 + size * 10 + usize::from(is_inside())) as *mut c_void
    }

    /// The test program's allocator is glibc.
    #[test]
    fn glibc_functions_are_called_directly() {
        unsafe extern "C" {
            fn malloc(size: usize) -> *mut c_void;
            fn posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
        }
        NEXT_ALLOCATOR.take(&Files::here());
        assert_eq!(NEXT_ALLOCATOR.malloc() as usize, malloc as *const () as usize);
        assert_eq!(NEXT_ALLOCATOR.posix_memalign() as usize, posix_memalign as *const () as usize);
    }

    #[test]
    fn a_trampoline_marks_the_call_and_forwards_it() {
        // `pvalloc`, because this program does not use it.
        RARE_MARKED.pvalloc.store(allocates as Paired as *mut c_void, Relaxed);
        let trampoline = rare_trampolines::pvalloc as *mut c_void;
        // SAFETY: leads to a function of this type.
        let trampoline = unsafe { core::mem::transmute::<*mut c_void, Paired>(trampoline) };
        // SAFETY: it has no conditions.
        let plain = unsafe { allocates(7, 3) };
        // SAFETY: as above.
        let marked = unsafe { trampoline(7, 3) };
        assert_eq!([plain as usize, marked as usize], [730, 731]);
    }
}
