//! The processor's time-stamp counter, which no system call is needed for.

/// What it shows.
pub(in crate::bpf) fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and the kernel forbids it to no process that has not asked for that.
    unsafe { std::arch::x86_64::_rdtsc() }
}
