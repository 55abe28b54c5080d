//! Hits of probed functions: approximate counts, shared by all CPUs.
//!
//! Exact totals count allocations; these counters count probe hits. No estimate depends on these
//! counters.

use crate::{atomic, maps};
use sampler_common::counting::{Counter as _, Scalable, Word, Worker};
use sampler_common::sampling::Random;
use sampler_common::wire::{HITS_PER_SLOT, HITS_SWITCH};

/// Counts a hit of a probe that has this counter ([`sampler_common::wire::Cookie::counter`]).
#[inline(always)]
pub fn count(slot: u32, counter: u32) {
    let index = slot.wrapping_mul(HITS_PER_SLOT) | counter & (HITS_PER_SLOT - 1);
    let Some(line) = maps::HITS.get_ptr_mut(index) else { return };
    let counter = Scalable { word: MapWord(line.cast()), switch: HITS_SWITCH };
    counter.count(&mut Worker { number: 0, random: HalfRandom });
}

/// A word of map memory.
struct MapWord(*mut u64);

impl Word for MapWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: a word of a map value, which the verifier has bounds-checked.
        unsafe { core::ptr::read_volatile(self.0) }
    }

    #[inline(always)]
    fn add(&self, amount: u64) {
        atomic::add(self.0, amount);
    }
}

/// The kernel's random number generator, which has a seed and a state for each CPU. A draw has 32
/// bits, as many as [`HITS_SWITCH`] needs.
struct HalfRandom;

impl Random for HalfRandom {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        // SAFETY: the helper has no preconditions.
        u64::from(unsafe { aya_ebpf::helpers::bpf_get_prandom_u32() })
    }
}
