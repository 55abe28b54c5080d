//! What stands for a process in `TARGETS`, without its hash: the word that is kept for its id.

use crate::{atomic, maps};
use core::ptr::{read_volatile, write_volatile};
use sampler_common::wire::{MEMO_UNKNOWN, MEMOS, memo, memo_key, memo_value};

/// The place of a process, in the present epoch.
pub struct Memo {
    word: *mut u64,
    key: u64,
}

impl Memo {
    /// Of process `pid`. What is to be kept has to be looked up after this.
    #[inline(always)]
    pub fn of(pid: u32) -> Option<Memo> {
        let state = maps::STATE.get_ptr(0)?;
        // SAFETY: a field of a map value.
        let epoch = unsafe { read_volatile(&raw const (*state).epoch) };
        let word = maps::MEMOS.get_ptr_mut(pid & (MEMOS - 1))?;
        Some(Memo { word, key: memo_key(pid, epoch) })
    }

    /// What stands for it; [`MEMO_UNKNOWN`] if that has to be looked up.
    #[inline(always)]
    pub fn value(&self) -> u32 {
        // SAFETY: a word of a map value, which other CPUs may be writing, hence volatile.
        memo_value(unsafe { read_volatile(self.word) }, self.key)
    }

    /// Keeps what was looked up.
    #[inline(always)]
    pub fn keep(&self, value: u32) {
        // SAFETY: as above.
        unsafe { write_volatile(self.word, memo(self.key, value)) };
    }
}

/// What stands for process `pid`; [`MEMO_UNKNOWN`] if that has to be looked up.
#[inline(always)]
pub fn value(pid: u32) -> u32 {
    Memo::of(pid).map_or(MEMO_UNKNOWN, |memo| memo.value())
}

/// `TARGETS` has changed otherwise than by giving a slot to a process that had none: what is kept is over.
#[inline(always)]
pub fn begin_epoch() {
    if let Some(state) = maps::STATE.get_ptr_mut(0) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*state).epoch }, 1);
    }
}
