//! The settings block of the in-process sampler, in the memory of the program. samplerd reads and
//! changes it from outside.
//!
//! samplerd finds the symbol `sampler_preload_settings` in the library's dynamic symbols; [`MAGIC`]
//! identifies the layout.

use crate::next_allocator::Usual;
use core::arch::asm;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use sampler_common::limits::PRELOADED_PER_SECOND;
use sampler_common::sampling::Rate;
use sampler_common::sampling::rate::HAZARD_CERTAIN;

/// "SMPLPRE6": the layout below.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SMPLPRE6");

/// "SMPLFWD6", in the place of [`MAGIC`]: this copy only forwards calls to another copy, which
/// samples.
const FORWARDS: u64 = u64::from_le_bytes(*b"SMPLFWD6");

/// The settings block: one cache line that every call reads, and one that few calls write.
#[repr(C, align(64))]
pub struct Settings {
    magic: AtomicU64,
    /// The rate in force, λ per byte in raw units ([`Rate`]); 0 before the first allocation.
    /// samplerd may write it at any time. The process writes it to keep its limit of samples.
    pub(crate) rate: AtomicU64,
    /// The rate that was asked for. Only samplerd writes it, from the first allocation on.
    pub(crate) requested: AtomicU64,
    /// Pointers to the functions that calls are forwarded to. They are in this cache line, so that
    /// a call needs no other one.
    pub(crate) usual: Usual,
    /// The hazard that replaces hazards of 2⁶³ or more.
    pub(crate) certain: u64,
    /// Samples that were dropped because no reader was attached. Every other sample is reported by
    /// a probe, either itself or by the way it ended ([`crate::probes`]).
    pub undelivered: AtomicU64,
    /// Nanoseconds between two samples at the limit of samples a second ([`crate::limit`]). Only
    /// samplerd writes it.
    pub(crate) period_ns: AtomicU64,
    /// The lowest rate that the limit has put into force, or the rate at the last fork if that is
    /// lower. `u64::MAX` if there is none. samplerd may reset it.
    pub(crate) lowest: AtomicU64,
    /// Number of times that the limit has lowered the rate from the requested one. samplerd may
    /// reset it.
    pub(crate) raises: AtomicU64,
    /// State of the token bucket: the time at which the bucket will have enough tokens for all
    /// samples that were sent.
    pub(crate) until_ns: AtomicU64,
    /// The function that reads the clock ([`crate::clock`]).
    pub(crate) clock: AtomicPtr<c_void>,
    unused_behind: [u64; 2],
}

/// The only instance.
#[cfg_attr(feature = "library", unsafe(export_name = "sampler_preload_settings"))]
pub static SETTINGS: Settings = Settings::new(Usual::first());

const _: () = assert!(size_of::<Settings>() == 128 && offset_of!(Settings, undelivered) == 64);

impl Settings {
    /// [`SETTINGS`], by its address relative to the code. Usually an exported static is reached
    /// through the global offset table, which costs an access. The linker allows this because of
    /// -Bsymbolic.
    #[inline(always)]
    pub(crate) fn here() -> &'static Settings {
        let here: *const Settings;
        // SAFETY: computes an address.
        unsafe {
            asm!(
                "lea {}, [rip + {}]",
                out(reg) here,
                sym SETTINGS,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: the address of a static.
        unsafe { &*here }
    }

    pub(crate) const fn new(usual: Usual) -> Settings {
        Settings {
            magic: AtomicU64::new(MAGIC),
            rate: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            usual,
            certain: HAZARD_CERTAIN,
            undelivered: AtomicU64::new(0),
            period_ns: AtomicU64::new(1_000_000_000 / PRELOADED_PER_SECOND),
            lowest: AtomicU64::new(u64::MAX),
            raises: AtomicU64::new(0),
            until_ns: AtomicU64::new(0),
            clock: AtomicPtr::new(null_mut()),
            unused_behind: [0; 2],
        }
    }

    /// The rate in force; [`Rate::NEVER`] before the first allocation.
    #[inline(always)]
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_raw(self.rate.load(Relaxed))
    }

    /// Puts a rate into force, unless one is already.
    pub fn begin(&self, rate: Rate) {
        let _ = self.requested.compare_exchange(0, rate.raw(), Relaxed, Relaxed);
        let _ = self.rate.compare_exchange(0, rate.raw(), Relaxed, Relaxed);
    }

    /// Leaves sampling to another copy of the library, to which this copy forwards calls. The rate
    /// becomes the lowest possible, so that hardly any call takes the slow path.
    pub(crate) fn leave(&self) {
        self.magic.store(FORWARDS, Relaxed);
        self.begin(Rate::from_raw(1));
    }

    /// Resets the counters in a forked child, since they are the parent's.
    pub(crate) fn note_forked(&self) {
        self.undelivered.store(0, Relaxed);
        self.raises.store(0, Relaxed);
        self.lowest.store(self.rate.load(Relaxed), Relaxed);
    }

    /// Whether sampling was left to another copy.
    pub(crate) fn is_left(&self) -> bool {
        self.magic.load(Relaxed) == FORWARDS
    }
}
