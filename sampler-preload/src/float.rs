//! Floating point inside `malloc`, of which the program must see nothing.
//!
//! A program may have exceptions unmasked (`feenableexcept` of glibc) and be killed by one that is ours, may read their flags, and may round otherwise. So its
//! control and status register is put away for the few computations that there are, none of them in what every call needs.
//!
//! Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3 (MXCSR).

use core::arch::asm;

/// All exceptions masked, none seen, rounding to nearest: as a process begins.
static INITIAL: u32 = 0x1f80;

/// What is computed of three numbers.
pub(crate) type Computed = extern "C" fn(u64, u64, u64) -> u64;

/// `compute` of these numbers.
pub(crate) fn undisturbed(compute: Computed, [first, second, third]: [u64; 3]) -> u64 {
    let mut state = 0u32;
    let result;
    // SAFETY: calls a function of this type, around which the register is stored and loaded with what it had.
    unsafe {
        asm!(
            "stmxcsr [r12]",
            "ldmxcsr [{initial}]",
            "call {compute}",
            "ldmxcsr [r12]",
            initial = in(reg) &raw const INITIAL,
            compute = in(reg) compute,
            // One that the function leaves as it is.
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

    /// Flags of exceptions, and what masks them.
    const FLAGS: u32 = 0x3f;
    const MASKS: u32 = 0x1f80;
    /// Rounding towards zero.
    const DOWN: u32 = 0x6000;

    fn exchange(state: u32) -> u32 {
        let mut before = 0u32;
        // SAFETY: stores the register, and loads it with what a test wants.
        unsafe {
            asm!("stmxcsr [{}]", "ldmxcsr [{}]", in(reg) &raw mut before, in(reg) &raw const state);
        }
        before
    }

    /// Every exception is deadly, and every number is rounded down.
    fn in_a_strict_program(work: fn() -> u64) -> (u64, u32) {
        let before = exchange(DOWN);
        let result = work();
        (result, exchange(before))
    }

    #[test]
    fn a_strict_program_is_not_disturbed() {
        let weight = || weight::weighted(40, Rate::from_raw(1 << 30), 1 << 63);
        let rate = || interval::rate(1000).raw();
        for work in [weight, rate] {
            let (result, state) = in_a_strict_program(work);
            assert_eq!((state & (FLAGS | MASKS), state & DOWN), (0, DOWN));
            assert_eq!(result, work());
        }
    }
}
