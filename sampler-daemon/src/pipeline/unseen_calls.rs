//! Functions whose return must not be probed: their allocations are counted, but not held. And
//! samples that were refused.

use super::worker::Worker;
use sampler_common::counters::Outcome;
use sampler_common::counting::Counted;
use sampler_common::note::BlindSpot;
use sampler_common::wire::Role;
use std::sync::Arc;

/// Reported of a file with such functions.
const MAY_THROW: &str = "operator new may throw, so that its return must not be probed: \
     what it allocates is counted, and not seen to be held";

impl Worker {
    /// Reports every process that has called a function whose return must not be probed.
    pub(super) fn note_unseen(&mut self) {
        let slots: Vec<u32> = self.ingest.table.slots();
        slots.into_iter().for_each(|slot| self.note_unseen_of(slot));
    }

    /// Marks every process that has sent more samples of its own than are accepted.
    pub(super) fn note_floods(&mut self) {
        let slots: Vec<u32> = self.ingest.table.slots();
        slots.into_iter().for_each(|slot| self.note_flood_of(slot));
    }

    /// As [`Worker::note_floods`], for one process.
    pub(super) fn note_flood_of(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let sampling = &mut self.ingest.processes.get_mut(profiled.id).sampling;
        if !sampling.samples_itself || sampling.is_flooded {
            return;
        }
        match self.kernel.totals.read(slot) {
            Ok(totals) if totals.outcome(Outcome::UsdtFlood) == 0 => {}
            Ok(_) => Arc::make_mut(sampling).is_flooded = true,
            Err(error) => tracing::warn!("{error:#}"),
        }
    }

    /// As [`Worker::note_unseen`], for one process.
    pub(super) fn note_unseen_of(&mut self, slot: u32) {
        self.note_ring_pressure(slot);
        if self.kernel.hits.read(slot, Role::New).iter().all(Counted::is_zero) {
            return;
        }
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let throwing = |allocator: &&crate::inspect::allocator::Allocator| {
            allocator.functions.iter().any(|function| function.role == Role::New)
        };
        let Some(allocator) = profiled.allocators.iter().find(throwing) else { return };
        let new = BlindSpot::at(&allocator.path, MAY_THROW);
        let blind_spots = &mut self.ingest.processes.get_mut(profiled.id).blind_spots;
        if !blind_spots.contains(&new) {
            blind_spots.push(new);
        }
    }
}
