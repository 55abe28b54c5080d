//! What samplerd reads and changes in the process from outside, and what is counted here.
//!
//! The symbol `sampler_preload_settings` is found in the library's dynamic symbols; the layout is what [`MAGIC`] stands for.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sampler_common::sampling::{Design, Rate};

/// "SMPLPRE1": the layout below.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SMPLPRE1");

/// The block.
#[repr(C, align(64))]
pub struct Settings {
    magic: u64,
    /// λ per byte in raw units ([`Rate`]); 0 until the process has allocated for the first time. Written by samplerd at any time.
    rate: AtomicU64,
    /// Samples that found the table full: they were not told, since their end could not be.
    pub table_full: AtomicU64,
    /// Blocks whose end was missed, and told when their address came again.
    pub ended_late: AtomicU64,
    unused: [u64; 4],
}

/// The one block.
#[cfg_attr(feature = "library", unsafe(export_name = "sampler_preload_settings"))]
pub static SETTINGS: Settings = Settings {
    magic: MAGIC,
    rate: AtomicU64::new(0),
    table_full: AtomicU64::new(0),
    ended_late: AtomicU64::new(0),
    unused: [0; 4],
};

const _: () = assert!(size_of::<Settings>() == 64);

impl Settings {
    /// The rate in force.
    #[inline(always)]
    pub fn rate(&self) -> Rate {
        Rate::from_raw(self.rate.load(Relaxed))
    }

    /// The same as a design of the shared core: geometric, whose word is the rate.
    #[inline(always)]
    pub fn design(&self) -> Design {
        Design::from_word(self.rate.load(Relaxed))
    }

    /// Puts a rate into force, unless one is already.
    pub fn begin(&self, rate: Rate) {
        let _ = self.rate.compare_exchange(0, rate.raw(), Relaxed, Relaxed);
    }

    /// Counts one more.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}
