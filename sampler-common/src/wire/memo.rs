//! The last look-up of a process on a CPU: a cache in front of the map `TARGETS`, for links that
//! processes share.
//!
//! A process id has one 64-bit word: the id, the value of the look-up, and the epoch of the
//! look-up. Whoever changes `TARGETS` begins a new epoch afterwards. A word is written with the
//! epoch from before its look-up. A word of the current epoch is therefore equal to what `TARGETS`
//! says. An epoch number comes again after 2^29 changes: an old word would then be taken for a
//! current one, if nobody had replaced it in between.

use crate::limits::MAX_KERNEL_SLOTS;

/// Number of words, a power of two. Processes whose ids differ by a multiple of it share a word,
/// and evict each other.
pub const MEMOS: u32 = 1 << 14;

/// In place of a slot: the process is not profiled, and its calls are counted.
pub const MEMO_EXCLUDED: u32 = MAX_KERNEL_SLOTS;
/// In place of a slot: the process is not profiled.
pub const MEMO_NOT_PROFILED: u32 = MAX_KERNEL_SLOTS + 1;
/// In place of a slot: the process gets a slot with its first allocation. This value is never
/// cached.
pub const MEMO_EXPECTED: u32 = MAX_KERNEL_SLOTS + 2;
/// In place of a slot: the word does not belong to the key.
pub const MEMO_UNKNOWN: u32 = VALUE;

/// Bits of a process id: `PID_MAX_LIMIT` in `include/linux/threads.h`.
const PID_BITS: u32 = 22;
const VALUE_BITS: u32 = 13;
const VALUE: u32 = (1 << VALUE_BITS) - 1;
const _: () = assert!(MEMO_EXPECTED < MEMO_UNKNOWN);
// Values that are slots are distinct from values that stand for no slot.
const _: () = assert!(MAX_KERNEL_SLOTS <= MEMO_EXCLUDED && MEMO_EXCLUDED < MEMO_NOT_PROFILED);

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

/// The value for the process of a key; [`MEMO_UNKNOWN`] if the word is of another process or epoch.
#[inline(always)]
pub const fn memo_value(word: u64, key: u64) -> u32 {
    let value = (word >> PID_BITS) as u32 & VALUE;
    if memo(key, value) == word { value } else { MEMO_UNKNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_equals_no_constant() {
        // With the maximum number of processes, the last slot is the daemon's own.
        let last = crate::limits::MAX_SLOTS;
        for constant in [MEMO_EXCLUDED, MEMO_NOT_PROFILED, MEMO_EXPECTED, MEMO_UNKNOWN] {
            assert!(last < constant);
        }
    }

    #[test]
    fn a_memo_holds_for_its_process_and_epoch_only() {
        for value in [0, 1, MAX_KERNEL_SLOTS - 1, MEMO_EXCLUDED, MEMO_NOT_PROFILED] {
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
