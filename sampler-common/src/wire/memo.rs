//! What a CPU has last seen of a process: in front of the map `TARGETS`, for links that processes share.
//!
//! One 64-bit word for a process id: the id, what stood for it, and the epoch in which it did. Whoever changes `TARGETS` begins a new
//! epoch afterwards, and a word is written with the epoch from before its look-up: so a word of the present epoch says what
//! `TARGETS` says. 2^29 changes later an old word would be believed again, if nobody had looked in between.

use crate::limits::MAX_KERNEL_SLOTS;

/// Words, as a power of two: processes whose ids differ by a multiple of it share one, and look each other up again.
pub const MEMOS: u32 = 1 << 14;

/// In place of a slot: not profiled, and its calls are counted.
pub const MEMO_EXCLUDED: u32 = MAX_KERNEL_SLOTS;
/// In place of a slot: not profiled.
pub const MEMO_NOBODY: u32 = MAX_KERNEL_SLOTS + 1;
/// In place of a slot: gets one with its first allocation. Never kept.
pub const MEMO_EXPECTED: u32 = MAX_KERNEL_SLOTS + 2;
/// In place of a slot: not known.
pub const MEMO_UNKNOWN: u32 = VALUE;

/// Bits of a process id: `PID_MAX_LIMIT` in `include/linux/threads.h`.
const PID_BITS: u32 = 22;
const VALUE_BITS: u32 = 13;
const VALUE: u32 = (1 << VALUE_BITS) - 1;
const _: () = assert!(MEMO_EXPECTED < MEMO_UNKNOWN);
// Whatever has a slot is distinct from whatever has none.
const _: () = assert!(MAX_KERNEL_SLOTS <= MEMO_EXCLUDED && MEMO_EXCLUDED < MEMO_NOBODY);

/// A word without its value.
#[inline(always)]
pub const fn memo_key(pid: u32, epoch: u64) -> u64 {
    epoch << (PID_BITS + VALUE_BITS) | pid as u64 & ((1 << PID_BITS) - 1)
}

/// The word for a key (see [`memo_key`]): `value` stands for the process.
#[inline(always)]
pub const fn memo(key: u64, value: u32) -> u64 {
    key | ((value & VALUE) as u64) << PID_BITS
}

/// What stands for the process of a key; [`MEMO_UNKNOWN`] if the word is of another process or epoch.
#[inline(always)]
pub const fn memo_value(word: u64, key: u64) -> u32 {
    let value = (word >> PID_BITS) as u32 & VALUE;
    if memo(key, value) == word { value } else { MEMO_UNKNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_is_no_constant() {
        // With as many processes as there can be it is the daemon's own.
        let last = crate::limits::MAX_SLOTS;
        for constant in [MEMO_EXCLUDED, MEMO_NOBODY, MEMO_EXPECTED, MEMO_UNKNOWN] {
            assert!(last < constant);
        }
    }

    #[test]
    fn only_the_same_process_and_epoch_are_known() {
        for value in [0, 1, MAX_KERNEL_SLOTS - 1, MEMO_EXCLUDED, MEMO_NOBODY] {
            let word = memo(memo_key(4_194_303, 7), value);
            assert_eq!(memo_value(word, memo_key(4_194_303, 7)), value);
            for (pid, epoch) in [(4_194_302, 7), (4_194_303, 8), (4_194_303, 6), (0, 7), (0, 0)] {
                assert_eq!(memo_value(word, memo_key(pid, epoch)), MEMO_UNKNOWN);
            }
        }
        // A map begins with zeros, and no process that can be probed has the id 0.
        assert_eq!(memo_value(0, memo_key(1, 0)), MEMO_UNKNOWN);
    }
}
