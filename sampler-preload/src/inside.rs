//! Nested calls: a call of the family that an allocator makes inside another call of the family is
//! not sampled a second time.
//!
//! Allocators build some of their functions on others, by their exported names, which are ours.
//! musl builds `calloc` on `malloc`, and `posix_memalign` on `aligned_alloc`. The program has
//! called the outer function, and frees the outer function's block.
//!
//! So a call sets a mark ([`crate::thread::marked`]) if the allocator is not known to work without nested calls
//! ([`crate::next_allocator`]). Calls of C++ operators set a mark too. The inner function is
//! charged as usual, since `malloc` has no time for a check. If it would be sampled, it checks the
//! mark and is not sampled. Dropping the samples of some calls does not change the probability of
//! the others: the rest of an exponential distance is exponential.
//!
//! The mark is the stack pointer at the outer call. It stays if the call is left by `longjmp` or an
//! exception. A mark counts only for calls slightly deeper in the same stack, and only while the
//! return address at the mark is that of the outer call.

use crate::thread::{Mark, marked_call};

/// Stack that an allocator needs between two of its functions, bytes. The memory between two such
/// addresses is readable.
const ALLOCATOR_STACK_BYTES: u64 = 16 << 10;
/// An upper bound of the bytes of code of [`marked_call`].
const CODE: u64 = 64;

/// Whether this call is part of another call of this thread.
pub(crate) fn is_inside() -> bool {
    let (mark, here) = (Mark::get(), Mark::here());
    if mark.abs_diff(here) >= ALLOCATOR_STACK_BYTES {
        // No mark, or the mark of another stack.
        return false;
    }
    let code = marked_call as *const () as u64;
    let is_inside = here < mark && returns_to(mark).wrapping_sub(code) < CODE;
    if !is_inside {
        // A mark of a call that never returned.
        Mark::put_back(0);
    }
    is_inside
}

/// The return address of the call that set this mark.
fn returns_to(mark: u64) -> u64 {
    // SAFETY: a word of this thread's stack between its current end and the mark.
    unsafe { ((mark - 8) as *const u64).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::marked;
    use core::ffi::c_void;

    unsafe extern "C" fn asks(deeper: usize, _: usize, _: usize) -> *mut c_void {
        let was_inside = is_inside();
        let is_inside = match deeper {
            0 => was_inside,
            _ => was_inside && inside(deeper - 1) && super::is_inside(),
        };
        usize::from(is_inside) as *mut c_void
    }

    fn inside(deeper: usize) -> bool {
        // SAFETY: `asks` takes as many words.
        let answer = unsafe { marked(deeper, 0, 0, asks as *mut c_void) };
        !answer.is_null()
    }

    #[test]
    fn inner_calls_are_recognized_per_thread() {
        assert!(!is_inside() && inside(0) && !is_inside() && inside(3) && !is_inside());
        std::thread::spawn(|| assert!(!is_inside())).join().unwrap();
    }

    /// The state after `longjmp`.
    #[test]
    fn a_call_left_by_longjmp_is_over() {
        let frames = std::hint::black_box([0u64; 64]);
        for of in [&raw const frames[32] as u64, Mark::here() - 128] {
            Mark::put_back(of);
            assert!(!is_inside() && Mark::get() == 0);
        }
        Mark::put_back(Mark::here() + (1 << 20));
        assert!(!is_inside());
        Mark::put_back(0);
        std::hint::black_box(frames);
    }
}
