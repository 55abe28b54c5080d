//! C++'s `operator new` and `operator delete`, in front of allocators that define them as well.
//!
//! Those of libstdc++ and libc++ call `malloc` and `free`, which are ours already: calls are passed on to them by a jump. jemalloc, tcmalloc, mimalloc and oneTBB's
//! define their own next to `malloc`, and these never come by us: they are sampled here (`new.rs`). If nobody behind us defines any (a C program, which may load a
//! C++ library later), they are `malloc` and `free` of the process.
//!
//! Which of these it is, is decided once: a block must not come from one allocator and go to another because something was loaded in between.

use crate::boot::boot;
use crate::inject::Function;
use crate::new;
use crate::next::{Files, Found};
use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Any of them: up to three words, as many as the largest has.
pub(crate) type Operator = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

/// Where the calls of one of them go.
#[repr(C)]
struct OperatorTarget {
    to: AtomicPtr<c_void>,
    /// The one behind us, if there is one.
    next: AtomicPtr<c_void>,
}

impl OperatorTarget {
    const fn new(begin: Operator) -> OperatorTarget {
        let to = AtomicPtr::new(begin as *mut c_void);
        OperatorTarget { to, next: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn to(&self) -> Operator {
        // SAFETY: only functions that take what this one's callers give are ever stored there.
        unsafe { core::mem::transmute::<*mut c_void, Operator>(self.to.load(Relaxed)) }
    }

    fn next(&self) -> *mut c_void {
        self.next.load(Relaxed)
    }

    fn take(&self, found: Option<Found>, sampled: Operator, without: Operator) {
        let next = found.map_or(core::ptr::null_mut(), |found| found.function);
        let to = match found {
            Some(found) if !found.is_of_allocator() => next,
            Some(_) => sampled as *mut c_void,
            None => without as *mut c_void,
        };
        self.next.store(next, Relaxed);
        self.to.store(to, Relaxed);
    }
}

/// A text that ends with a zero.
const fn named(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Offset of a way's second word.
pub(crate) const NEXT: usize = offset_of!(OperatorTarget, next);

/// `EXPORTED = its way, what is done where it is sampled, what is done without one behind us, what is done where it is injected`
macro_rules! operators {
    ($($exported:ident = $way:ident, $sampled:path, $without:path, $injected:ident;)*) => {
        $(
            static $way: OperatorTarget = OperatorTarget::new({
                unsafe extern "C" fn begin(first: usize, second: usize, third: usize) -> *mut c_void {
                    boot();
                    // SAFETY: forwards the call.
                    unsafe { $way.to()(first, second, third) }
                }
                begin
            });

            #[doc = concat!("`", stringify!($exported), "`")]
            ///
            /// # Safety
            /// As of the function of that name in C++.
            #[allow(non_snake_case, reason = "mangled")]
            #[cfg_attr(feature = "library", unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $exported() {
                // An exception finds no frame of ours.
                naked_asm!("jmp qword ptr [rip + {}]", sym $way)
            }
        )*

        /// What a loader fills in. Each operator leads to what is done where it is injected, and that to the one behind us.
        pub(crate) const OPERATORS: [Function; [$(stringify!($exported)),*].len()] = [$({
            #[unsafe(naked)]
            unsafe extern "C" fn injected() {
                new::$injected!($way)
            }
            Function::new(stringify!($exported), &raw const $way.to, &raw const $way.next, injected)
        }),*];

        /// Takes what is behind us.
        pub(crate) fn take(files: &Files) {
            // Most processes have none, and need not be asked for each.
            let has_any = files.found(c"_Znwm").is_some();
            $({
                unsafe extern "C" fn sampled(first: usize, second: usize, third: usize) -> *mut c_void {
                    // SAFETY: forwards the call.
                    unsafe { $sampled(first, second, third, $way.next()) }
                }
                unsafe extern "C" fn without(first: usize, second: usize, third: usize) -> *mut c_void {
                    // SAFETY: forwards the call.
                    unsafe { $without(first, second, third, NAME) }
                }
                const NAME: &CStr = named(concat!(stringify!($exported), "\0"));
                $way.take(has_any.then(|| files.found(NAME)).flatten(), sampled, without);
            })*
        }
    };
}

operators! {
    _Znwm = NEW, new::sampled, new::of_malloc, new_injected;
    _Znam = NEW_ARRAY, new::sampled, new::of_malloc, new_injected;
    _ZnwmRKSt9nothrow_t = NEW_NOTHROW, new::sampled, new::of_malloc, new_injected;
    _ZnamRKSt9nothrow_t = NEW_ARRAY_NOTHROW, new::sampled, new::of_malloc, new_injected;
    _ZnwmSt11align_val_t = NEW_ALIGNED, new::sampled, new::of_memalign, new_aligned_injected;
    _ZnamSt11align_val_t = NEW_ARRAY_ALIGNED, new::sampled, new::of_memalign, new_aligned_injected;
    _ZnwmSt11align_val_tRKSt9nothrow_t = NEW_ALIGNED_NOTHROW, new::sampled, new::of_memalign, new_aligned_injected;
    _ZnamSt11align_val_tRKSt9nothrow_t = NEW_ARRAY_ALIGNED_NOTHROW, new::sampled, new::of_memalign, new_aligned_injected;
    _ZdlPv = DELETE, new::ended, new::of_free, delete_injected;
    _ZdaPv = DELETE_ARRAY, new::ended, new::of_free, delete_injected;
    _ZdlPvm = DELETE_SIZED, new::ended, new::of_free, delete_injected;
    _ZdaPvm = DELETE_ARRAY_SIZED, new::ended, new::of_free, delete_injected;
    _ZdlPvRKSt9nothrow_t = DELETE_NOTHROW, new::ended, new::of_free, delete_injected;
    _ZdaPvRKSt9nothrow_t = DELETE_ARRAY_NOTHROW, new::ended, new::of_free, delete_injected;
    _ZdlPvSt11align_val_t = DELETE_ALIGNED, new::ended, new::of_free, delete_injected;
    _ZdaPvSt11align_val_t = DELETE_ARRAY_ALIGNED, new::ended, new::of_free, delete_injected;
    _ZdlPvmSt11align_val_t = DELETE_SIZED_ALIGNED, new::ended, new::of_free, delete_injected;
    _ZdaPvmSt11align_val_t = DELETE_ARRAY_SIZED_ALIGNED, new::ended, new::of_free, delete_injected;
    _ZdlPvSt11align_val_tRKSt9nothrow_t = DELETE_ALIGNED_NOTHROW, new::ended, new::of_free, delete_injected;
    _ZdaPvSt11align_val_tRKSt9nothrow_t = DELETE_ARRAY_ALIGNED_NOTHROW, new::ended, new::of_free, delete_injected;
}
