//! What samplerd reads and changes in the process from outside, and what it reads there.
//!
//! The symbol `sampler_preload_settings` is found in the library's dynamic symbols; the layout is what [`MAGIC`] stands for.

use crate::real::Usual;
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sampler_common::sampling::Rate;
use sampler_common::sampling::rate::HAZARD_CERTAIN;

/// "SMPLPRE5": the layout below.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SMPLPRE5");

/// "SMPLFWD5", in the place of [`MAGIC`]: this copy only passes calls on to another one, which is the one to ask.
const FORWARDS: u64 = u64::from_le_bytes(*b"SMPLFWD5");

/// The block: in one line of cache what every call reads, in the next what few calls write.
#[repr(C, align(64))]
pub struct Settings {
    magic: AtomicU64,
    /// λ per byte in raw units ([`Rate`]); 0 until the process has allocated for the first time. Written by samplerd at any time.
    pub(crate) rate: AtomicU64,
    /// The rate that was asked for, in raw units ([`Rate`]), while samplerd has put a lower one into force because too many samples came; 0 otherwise. Here, so that a
    /// forked child has it, and whoever comes after a samplerd that was killed. Written by samplerd alone.
    asked: AtomicU64,
    /// Where calls go on to: here, so that they need no other line for it.
    pub(crate) usual: Usual,
    /// What a hazard of 2⁶³ or more counts as.
    pub(crate) certain: u64,
    /// Samples of which nobody was told, since nobody listened. All others are told, or how they ended ([`crate::probes`]).
    pub unheard: AtomicU64,
    unused_behind: [u64; 7],
}

/// The one block.
#[cfg_attr(feature = "library", unsafe(export_name = "sampler_preload_settings"))]
pub static SETTINGS: Settings = Settings::new(Usual::first());

const _: () = assert!(size_of::<Settings>() == 128 && offset_of!(Settings, unheard) == 64);

impl Settings {
    /// [`SETTINGS`], but not through the GOT, through which an exported static is reached otherwise (the linker allows that because of -Bsymbolic).
    #[inline(always)]
    pub(crate) fn here() -> &'static Settings {
        let here: *const Settings;
        // SAFETY: makes an address.
        unsafe {
            asm!(
                "lea {}, [rip + {}]",
                out(reg) here,
                sym SETTINGS,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: that of a static.
        unsafe { &*here }
    }

    pub(crate) const fn new(usual: Usual) -> Settings {
        Settings {
            magic: AtomicU64::new(MAGIC),
            rate: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            usual,
            certain: HAZARD_CERTAIN,
            unheard: AtomicU64::new(0),
            unused_behind: [0; 7],
        }
    }

    /// The rate in force; [`Rate::NEVER`]: none is yet.
    #[inline(always)]
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_raw(self.rate.load(Relaxed))
    }

    /// Puts a rate into force, unless one is already.
    pub fn begin(&self, rate: Rate) {
        let _ = self.rate.compare_exchange(0, rate.raw(), Relaxed, Relaxed);
    }

    /// Leaves sampling to another copy behind this one. The rate is the lowest there is, so that hardly any call asks.
    pub(crate) fn leave(&self) {
        self.magic.store(FORWARDS, Relaxed);
        self.begin(Rate::from_raw(1));
    }

    /// Whether it was left.
    pub(crate) fn is_left(&self) -> bool {
        self.magic.load(Relaxed) == FORWARDS
    }
}
