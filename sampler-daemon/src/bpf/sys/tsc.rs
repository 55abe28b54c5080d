//! The processor's time-stamp counter, which no system call is needed for.

use std::arch::x86_64::{_mm_lfence, _rdtsc};

/// What it shows when everything before is done.
pub(in crate::bpf) fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 processor has the instruction, and the kernel forbids it to no process that has not asked for that.
    unsafe { _rdtsc() }
}
