//! What a function of the family asks of others of the family is part of it, and is not sampled a second time.
//!
//! Allocators make some of their functions of others, by the names that they export, which are ours: musl `calloc` of `malloc`, `posix_memalign` of
//! `aligned_alloc`. The outer one is what the program has asked for, and its block the one that is freed. So calls of an allocator that is not
//! known to do without that ([`crate::real`]), and of its operators of C++, leave a mark meanwhile ([`marked`]); the inner function is charged as any,
//! since `malloc` has no time to look, and if it would be sampled, it looks and is not. To leave out the samples of some calls changes nothing in the chance
//! of all others: what is left of an exponential distance is one.
//!
//! The mark is the stack's end at the time. Where a call is left by `longjmp` or an exception it stays. It counts only a little deeper in
//! the same stack, and while the address that the call returns to lies there.

use crate::thread::{Mark, marked};

/// Stack that an allocator needs between two functions of its own, bytes. So near, what lies in between is there to be read.
const ALLOCATOR_STACK_BYTES: u64 = 16 << 10;
/// More bytes of code than [`marked`] has.
const CODE: u64 = 64;

/// Whether this is part of another call of this thread.
pub(crate) fn is_inside() -> bool {
    let (mark, here) = (Mark::get(), Mark::here());
    if mark.abs_diff(here) >= ALLOCATOR_STACK_BYTES {
        // None, or that of another stack.
        return false;
    }
    let is_inside = here < mark && returns_to(mark).wrapping_sub(marked as *const () as u64) < CODE;
    if !is_inside {
        // Of a call that was never returned from.
        Mark::put_back(0);
    }
    is_inside
}

/// Where a call returns to that was made when the stack ended here.
fn returns_to(mark: u64) -> u64 {
    // SAFETY: a word of this thread's stack that lies between its end and what was its end.
    unsafe { ((mark - 8) as *const u64).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // SAFETY: a function of as many words.
        let answer = unsafe { marked(deeper, 0, 0, asks as *mut c_void) };
        !answer.is_null()
    }

    #[test]
    fn calls_within_calls() {
        assert!(!is_inside() && inside(0) && !is_inside() && inside(3) && !is_inside());
        std::thread::spawn(|| assert!(!is_inside())).join().unwrap();
    }

    /// As after `longjmp`.
    #[test]
    fn a_call_that_was_left_is_over() {
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
