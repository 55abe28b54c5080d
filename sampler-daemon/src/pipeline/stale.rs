//! Entries of address spaces that are no more: calls that will never return, blocks that nobody holds.
//!
//! The maps have them by their own keys, so that finding some means reading all: once for all processes that are gone by then, and not
//! too often.

use super::worker::Worker;
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::wire::Space;
use std::time::{Duration, Instant};

/// How often.
const PERIOD: Duration = Duration::from_secs(1);

/// Whether there are such entries.
#[derive(Debug, Default)]
pub(super) struct Stale {
    noted: bool,
    last: Option<Instant>,
}

impl Stale {
    /// There may be some.
    pub(super) fn note(&mut self) {
        self.noted = true;
    }

    fn is_due(&mut self) -> bool {
        let due = self.noted && self.last.is_none_or(|last| last.elapsed() >= PERIOD);
        if due {
            *self = Stale { noted: false, last: Some(Instant::now()) };
        }
        due
    }
}

impl Worker {
    /// Takes stale entries out, where it is time to.
    pub(super) fn take_stale(&mut self) {
        if self.stale.is_due() {
            self.take_stale_now();
        }
    }

    pub(super) fn take_stale_now(&mut self) {
        let slots = 0..self.config.settings.slots;
        let newest: FxHashMap<u32, u32> =
            slots.map(|slot| (slot, self.kernel.slots.generation(slot))).collect();
        let is_stale = |space: Space| {
            newest.get(&space.slot).is_some_and(|generation| space.generation < *generation)
        };
        match self.kernel.pending.forget(is_stale) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
        if self.kernel.live.is_empty() {
            return;
        }
        match self.kernel.live.entries() {
            Ok(entries) => {
                for (key, entry) in entries.iter().filter(|(key, _)| is_stale(key.space)) {
                    if let Err(error) = self.kernel.live.remove(key, entry.sample) {
                        tracing::warn!("take a sample out of the live set: {error}");
                    }
                }
            }
            Err(error) => tracing::warn!("read the live set: {error}"),
        }
    }
}
