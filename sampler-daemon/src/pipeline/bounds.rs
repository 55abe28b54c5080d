//! Bounds that one process has hit: its own losses, and refusals that protect other processes.

use super::worker::Worker;
use crate::bpf::maps::totals::SlotTotals;
use crate::store::ProcessId;
use sampler_common::counters::Outcome;

/// Outcomes that count hits of a bound.
const BOUNDS: [Outcome; 10] = [
    Outcome::PendingFull,
    Outcome::RingFull,
    Outcome::RingShare,
    Outcome::LostCellsFull,
    Outcome::LiveFull,
    Outcome::LiveDeclined,
    Outcome::FreeRingFull,
    Outcome::FreeRingShare,
    Outcome::EventRingFull,
    Outcome::MappingRingFull,
];

/// The bounds that `totals` has hit, with how often.
pub(super) fn of_totals(totals: &SlotTotals) -> Vec<(Outcome, u64)> {
    let hit = BOUNDS.iter().map(|outcome| (*outcome, totals.outcome(*outcome)));
    hit.filter(|(_, count)| *count > 0).collect()
}

impl Worker {
    /// How often these processes have hit a bound.
    pub(super) fn hits_of(&self, processes: &[ProcessId], bound: Outcome) -> u64 {
        let hits = processes.iter().flat_map(|id| self.bounds(*id));
        hits.filter(|(of, _)| *of == bound).map(|(_, count)| count).sum()
    }

    /// The bounds that a process has hit so far, or had hit at its exit.
    pub(super) fn bounds(&self, id: ProcessId) -> Vec<(Outcome, u64)> {
        match self.ingest.slot_of(id).map(|slot| self.kernel.totals.read(slot)) {
            Some(Ok(totals)) => of_totals(&totals),
            Some(Err(error)) => {
                tracing::warn!("{error:#}");
                Vec::new()
            }
            None => self.ingest.processes.get(id).final_bounds.clone(),
        }
    }
}
