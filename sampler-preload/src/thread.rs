//! The state of each thread: its countdown, the state of its random numbers, and its mark inside
//! the allocator.
//!
//! The state is 24 bytes of thread-local memory, zero at first. Its offset from the thread pointer
//! is fixed when the library is loaded (initial-exec): no call, no constructor, no destructor.
//! Every access is one instruction, so that a signal handler that allocates comes before it or
//! after it. Only this file and `malloc` know the place of the memory.
//!
//! # The countdown
//!
//! The countdown's word is the remaining hazard, negated: below 0 the countdown is running, from 0
//! on it is not. So one addition of a request's hazard h updates it, and the flags have the result.
//! With d left before the addition:
//!
//! ```text
//! runs on:  d > h      −d + h < 0                             less
//! ends:     0 < d ≤ h  −d + h ≥ 0, and 2⁶⁴ − d + h ≥ 2⁶⁴      greater or equal, carry
//! idle:     d ≤ 0      −d + h ≥ 0                             greater or equal, no carry
//! ```
//!
//! A signal handler finds the value before the addition or after it, and both are valid for
//! [`sampler_common::sampling::countdown`]. A load and a store would not do: the result would
//! depend on handlers between the two.
//!
//! "Less" refers to the true sum, since the processor's condition is right even if the sum wraps.
//!
//! - The hazard h is below 2⁶³: a larger product counts as 2⁵⁴, which is certain. d is at most 2⁵⁴,
//!   so the sum of a running countdown does not wrap.
//! - A countdown that is not running is at 0 between two requests, since the request that ends a
//!   countdown begins another. It is above 0 only between the addition and that.
//! - To wrap there, nested handlers would have to suspend requests with 2⁶³ of hazard in one
//!   thread: 16 GiB at an interval of 512 KiB. The next handler's request would then not be
//!   sampled. The suspended requests put the countdown right.

use core::arch::{asm, global_asm, naked_asm};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use sampler_common::sampling::{Cell, Random};

global_asm!(
    ".pushsection .tbss.sampler_preload_thread, \"awT\", @nobits",
    ".balign 16",
    ".hidden sampler_preload_thread",
    ".globl sampler_preload_thread",
    ".type sampler_preload_thread, @object",
    ".size sampler_preload_thread, 24",
    "sampler_preload_thread:",
    ".zero 24",
    ".popsection",
);

/// 2⁶⁴ divided by the golden ratio, odd (splitmix64; Steele, Lea, Flood, OOPSLA 2014).
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// This thread's countdown.
#[derive(Clone, Copy, Debug)]
pub struct Countdown;

/// This thread's random numbers.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRandom;

/// This thread's mark, see [`crate::inside`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark;

#[inline(always)]
fn offset() -> u64 {
    let offset;
    // SAFETY: reads the offset that the loader has written for this variable; it never changes.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + sampler_preload_thread@GOTTPOFF]",
            out(reg) offset,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// The result of charging a request to the countdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Charged {
    /// No countdown was running.
    Idle = 0,
    /// The countdown has ended: the request is sampled.
    Ends = 1,
    /// The request was not charged yet.
    Not = 2,
    /// The countdown has run on.
    RunsOn = 3,
}

impl Countdown {
    /// Charges a request's hazard; `None`: the countdown runs on.
    #[inline(always)]
    pub(crate) fn charge(self, hazard: i64) -> Option<Charged> {
        // SAFETY: adds to eight bytes of this thread's own memory.
        unsafe {
            asm!(
                "add qword ptr fs:[{}], {}",
                "jc {}",
                "jge {}",
                in(reg) offset(),
                in(reg) hazard,
                label { return Some(Charged::Ends) },
                label { return Some(Charged::Idle) },
                options(nostack),
            );
        }
        None
    }
}

impl Cell for Countdown {
    #[inline(always)]
    fn fetch_sub(&self, amount: i64) -> i64 {
        let mut word = amount;
        // SAFETY: adds to eight bytes of this thread's own memory.
        unsafe {
            asm!("xadd qword ptr fs:[{}], {}", in(reg) offset(), inout(reg) word, options(nostack));
        }
        word.wrapping_neg()
    }

    #[inline(always)]
    fn swap(&self, value: i64) -> i64 {
        let mut word = value.wrapping_neg();
        // SAFETY: replaces eight bytes of this thread's own memory.
        unsafe {
            asm!("xchg qword ptr fs:[{}], {}", in(reg) offset(), inout(reg) word, options(nostack));
        }
        word.wrapping_neg()
    }
}

impl Mark {
    /// Sets the mark.
    pub(crate) fn put_back(mark: u64) {
        // SAFETY: replaces the last eight bytes of this thread's own memory.
        unsafe {
            asm!("mov qword ptr fs:[{} + 16], {}", in(reg) offset(), in(reg) mark, options(nostack, preserves_flags));
        }
    }

    /// Reads the mark.
    pub(crate) fn get() -> u64 {
        let mark;
        // SAFETY: reads the last eight bytes of this thread's own memory.
        unsafe {
            asm!("mov {}, qword ptr fs:[{} + 16]", out(reg) mark, in(reg) offset(), options(nostack, preserves_flags, readonly));
        }
        mark
    }

    /// The stack pointer.
    pub(crate) fn here() -> u64 {
        let here;
        // SAFETY: reads a register.
        unsafe {
            asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
        }
        here
    }
}

/// Calls `function` with a mark, and with a frame that an exception can pass; after an exception
/// the mark stays.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn marked(
    first: usize,
    second: usize,
    third: usize,
    function: *mut c_void,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "mov r11, rcx",
        "jmp {call}",
        ".cfi_endproc",
        call = sym marked_call,
    )
}

/// [`marked`], with the function in `r11`. All parameters stay in their registers.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn marked_call() {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + sampler_preload_thread@GOTTPOFF]",
        "push qword ptr fs:[rax + 16]",
        ".cfi_adjust_cfa_offset 8",
        "mov qword ptr fs:[rax + 16], rsp",
        "call r11",
        "mov rcx, qword ptr [rip + sampler_preload_thread@GOTTPOFF]",
        "pop qword ptr fs:[rcx + 16]",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

impl Random for ThreadRandom {
    fn next(&mut self) -> u64 {
        let before = ThreadRandom::add(GAMMA);
        if before == 0 {
            // The first number of this thread, or one of 2⁶⁴ numbers.
            ThreadRandom::reseed();
            return drawn(ThreadRandom::add(GAMMA));
        }
        drawn(before)
    }
}

impl ThreadRandom {
    /// Seeds the numbers anew, with a seed that no other thread or process has.
    pub fn reseed() {
        ThreadRandom::add(mixed(crate::boot::seed()));
    }

    fn add(amount: u64) -> u64 {
        let mut word = amount;
        // SAFETY: adds to the second eight bytes of this thread's own memory.
        unsafe {
            asm!("xadd qword ptr fs:[{} + 8], {}", in(reg) offset(), inout(reg) word, options(nostack));
        }
        word
    }
}

/// The number of a thread's state. Threads of sibling processes may have equal states: libc gives
/// the stacks of the parent's threads to new threads of a child, with this memory. The seeds of the
/// processes differ.
fn drawn(state: u64) -> u64 {
    mixed(state ^ crate::boot::SEED.load(Relaxed))
}

/// The finalizer of splitmix64.
pub const fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_countdown() {
        assert_eq!(Countdown.swap(100), 0);
        assert_eq!(Countdown.fetch_sub(30), 100);
        std::thread::spawn(|| assert_eq!(Countdown.swap(5), 0)).join().unwrap();
        assert_eq!(Countdown.swap(0), 70);
    }

    #[test]
    fn threads_draw_different_random_numbers() {
        let throw =
            || std::thread::spawn(|| [ThreadRandom.next(), ThreadRandom.next()]).join().unwrap();
        let (first, second) = (throw(), throw());
        assert!(first[0] != first[1] && first[0] != second[0] && first[1] != second[0]);
    }
}
