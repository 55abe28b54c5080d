//! Entries of address spaces that have ended: calls that never return, and blocks that nobody
//! holds.
//!
//! The maps have their own keys, so finding stale entries means reading all. That is done once for
//! all processes that are gone by then, and not too often.

use crate::pipeline::worker::Worker;
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::wire::Space;
use std::time::{Duration, Instant};

/// Least time between two sweeps.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// Replaces the command of a process that was gone before it was seen.
const UNKNOWN: &str = "[unknown]";

/// Whether there may be stale entries.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct Stale {
    noted: bool,
    last: Option<Instant>,
}

impl Stale {
    /// Notes that there may be stale entries.
    pub(in crate::pipeline) fn note(&mut self) {
        self.noted = true;
    }

    fn is_due(&mut self) -> bool {
        let due = self.noted && self.last.is_none_or(|last| last.elapsed() >= SWEEP_PERIOD);
        if due {
            *self = Stale { noted: false, last: Some(Instant::now()) };
        }
        due
    }
}

impl Worker {
    /// Removes stale entries, if a sweep is due.
    pub(in crate::pipeline) fn take_stale(&mut self) {
        if self.stale.is_due() {
            self.take_stale_now();
        }
    }

    /// Enters processes that have a slot that the daemon does not know. Their `Appeared` record
    /// found no room in the ring, and their slots would never become vacant.
    pub(in crate::pipeline) fn adopt_missed(&mut self) {
        if !self.config.is_open() {
            return;
        }
        let missed: Vec<(u32, u32)> = self
            .kernel
            .targets
            .all()
            .into_iter()
            .filter(|(_, slot)| *slot < self.config.settings.slots)
            .filter(|(_, slot)| !self.ingest.table.contains(*slot))
            .collect();
        if missed.is_empty() {
            return;
        }
        // Most have just appeared, and their records are in the ring.
        self.read_and_handle();
        for (pid, slot) in missed {
            if !self.ingest.table.contains(slot) && self.kernel.targets.has(pid, slot) {
                let generation = self.kernel.slots.generation(slot);
                self.ingest.add_new_process(Space { slot, generation }, pid, UNKNOWN.to_owned());
            }
        }
    }

    pub(in crate::pipeline) fn take_stale_now(&mut self) {
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
