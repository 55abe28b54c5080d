//! C++'s `operator new` and `operator delete`, in front of allocators that define them as well.
//!
//! The target of the calls depends on the definitions behind us:
//!
//! - libstdc++'s and libc++'s operators call `malloc` and `free`, which are ours already: a jump
//!   forwards the calls.
//! - jemalloc, tcmalloc, mimalloc and oneTBB define their own operators next to `malloc`, and these
//!   do not call our functions. They are sampled here (`new.rs`).
//! - Without any definition (a C program, which may load a C++ library later) the operators are the
//!   process's `malloc` and `free`.
//!
//! The target is chosen once: a block must not come from one allocator and go to another because a
//! library was loaded in between.

use crate::boot::boot;
use crate::inject::Function;
use crate::new;
use crate::next::{Files, Found};
use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The type of all operators: up to three words, as many as the largest takes.
pub(crate) type Operator = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

/// Target of the calls of one operator.
#[repr(C)]
struct OperatorTarget {
    to: AtomicPtr<c_void>,
    /// The operator behind us, or null.
    next: AtomicPtr<c_void>,
}

impl OperatorTarget {
    const fn new(begin: Operator) -> OperatorTarget {
        let to = AtomicPtr::new(begin as *mut c_void);
        OperatorTarget { to, next: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn to(&self) -> Operator {
        // SAFETY: only functions with the parameters of this operator are ever stored there.
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

/// A text that ends with a zero, as a C string.
const fn named(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Offset of a target's second word.
pub(crate) const NEXT: usize = offset_of!(OperatorTarget, next);

/// `EXPORTED = target, function if sampled, function without one behind us, code if injected`
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
            /// As for the function of that name in C++.
            #[allow(non_snake_case, reason = "mangled")]
            #[cfg_attr(feature = "library", unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $exported() {
                // A jump makes no frame that an exception could find.
                naked_asm!("jmp qword ptr [rip + {}]", sym $way)
            }
        )*

        /// The words that a loader fills in. Each operator leads to the injected code, and that
        /// code to the operator behind us.
        pub(crate) const OPERATORS: [Function; [$(stringify!($exported)),*].len()] = [$({
            #[unsafe(naked)]
            unsafe extern "C" fn injected() {
                new::$injected!($way)
            }
            Function::new(stringify!($exported), &raw const $way.to, &raw const $way.next, injected)
        }),*];

        /// Looks up the operators behind us.
        pub(crate) fn take(files: &Files) {
            // Most processes have none, and need no look-up for each operator.
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
