//! Floating point inside `malloc`, invisible to the program.
//!
//! A program may have exceptions unmasked (`feenableexcept` of glibc), and an exception of ours
//! would kill it. It may also read exception flags, or use another rounding mode. So the control
//! and status register is saved and restored around the few computations. No computation is on the
//! hot path.
//!
//! Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3
//! (MXCSR).

use core::arch::asm;

/// All exceptions masked, no flag set, rounding to nearest: the initial state of a process.
static INITIAL: u32 = 0x1f80;

/// A computation of three numbers.
pub(crate) type Computed = extern "C" fn(u64, u64, u64) -> u64;

/// Returns `compute` of these numbers, and leaves the register as it was.
pub(crate) fn undisturbed(compute: Computed, [first, second, third]: [u64; 3]) -> u64 {
    let mut state = 0u32;
    let result;
    // SAFETY: calls a function of this type; the register is saved before and restored after.
    unsafe {
        asm!(
            "stmxcsr [r12]",
            "ldmxcsr [{initial}]",
            "call {compute}",
            "ldmxcsr [r12]",
            initial = in(reg) &raw const INITIAL,
            compute = in(reg) compute,
            // A register that the function preserves.
            in("r12") &raw mut state,
            inout("rdi") first => _,
            inout("rsi") second => _,
            inout("rdx") third => _,
            lateout("rax") result,
            clobber_abi("C"),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{interval, weight};
    use sampler_common::sampling::Rate;

    /// Flags of exceptions, and their masks.
    const FLAGS: u32 = 0x3f;
    const MASKS: u32 = 0x1f80;
    /// Rounding towards zero.
    const DOWN: u32 = 0x6000;

    fn exchange(state: u32) -> u32 {
        let mut before = 0u32;
        // SAFETY: stores the register, and loads it with the test's value.
        unsafe {
            asm!("stmxcsr [{}]", "ldmxcsr [{}]", in(reg) &raw mut before, in(reg) &raw const state);
        }
        before
    }

    /// Runs `work` with every exception unmasked and rounding towards zero.
    fn in_a_strict_program(work: fn() -> u64) -> (u64, u32) {
        let before = exchange(DOWN);
        let result = work();
        (result, exchange(before))
    }

    #[test]
    fn float_exceptions_and_rounding_are_restored() {
        let weight = || weight::weighted(40, Rate::from_raw(1 << 30), 1 << 63);
        let rate = || interval::rate(1000).raw();
        for work in [weight, rate] {
            let (result, state) = in_a_strict_program(work);
            assert_eq!((state & (FLAGS | MASKS), state & DOWN), (0, DOWN));
            assert_eq!(result, work());
        }
    }
}
