//! A cache in front of `TARGETS` that needs no hashing: one word for each process id modulo
//! [`MEMOS`].

use crate::{atomic, maps};
use core::ptr::{read_volatile, write_volatile};
use sampler_common::wire::{MEMO_UNKNOWN, MEMOS, memo, memo_key, memo_value};

/// The cache word of a process, in the present epoch.
pub struct Memo {
    word: *mut u64,
    key: u64,
}

impl Memo {
    /// The memo of process `pid`. A value for [`Memo::keep`] must be read from `TARGETS` after this
    /// call, so that it is no older than the epoch.
    #[inline(always)]
    pub fn of(pid: u32) -> Option<Memo> {
        let state = maps::STATE.get_ptr(0)?;
        // SAFETY: a field of a map value.
        let epoch = unsafe { read_volatile(&raw const (*state).epoch) };
        let word = maps::MEMOS.get_ptr_mut(pid & (MEMOS - 1))?;
        Some(Memo { word, key: memo_key(pid, epoch) })
    }

    /// The cached value; [`MEMO_UNKNOWN`] if the value has to be looked up.
    #[inline(always)]
    pub fn value(&self) -> u32 {
        // SAFETY: a word of a map value, which other CPUs may be writing, hence volatile.
        memo_value(unsafe { read_volatile(self.word) }, self.key)
    }

    /// Caches the value that was looked up.
    #[inline(always)]
    pub fn keep(&self, value: u32) {
        // SAFETY: as above.
        unsafe { write_volatile(self.word, memo(self.key, value)) };
    }
}

/// The cached value of process `pid`; [`MEMO_UNKNOWN`] if the value has to be looked up.
#[inline(always)]
pub fn value(pid: u32) -> u32 {
    Memo::of(pid).map_or(MEMO_UNKNOWN, |memo| memo.value())
}

/// Invalidates all memos. Every change of `TARGETS` needs that, except giving a slot to a process
/// that had none.
#[inline(always)]
pub fn begin_epoch() {
    if let Some(state) = maps::STATE.get_ptr_mut(0) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*state).epoch }, 1);
    }
}
