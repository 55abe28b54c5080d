//! Sets the borders of time slots, and counts what happened between them.

use super::clock::monotonic_ns;
use super::totals::by_class;
use super::worker::Worker;
use crate::bpf::maps::totals::SlotTotals;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::wire::{LostCell, LostKey};

/// Outcomes of a sample whose record was lost.
const LOSSES: [Outcome; 4] =
    [Outcome::RingFull, Outcome::RingShare, Outcome::ReadFault, Outcome::PendingFull];

impl Worker {
    /// Ends the newest time slot, if it is long enough. Then returns totals of all slots, as
    /// [`Worker::kernel_totals`].
    pub(super) fn make_border(&mut self) -> Option<SlotTotals> {
        let now_ns = monotonic_ns();
        if !self.ingest.windows.is_due(now_ns) {
            return None;
        }
        let totals = self.observe();
        self.ingest.windows.close(now_ns);
        self.ingest.mapped.windows.close(now_ns);
        Some(totals)
    }

    /// Adds the counts since the last reading to the newest time slot. Returns totals of all slots.
    pub(super) fn observe(&mut self) -> SlotTotals {
        let totals: Vec<(u32, ProcessId, SlotTotals)> = self
            .ingest
            .table
            .iter()
            .filter_map(|(slot, profiled)| match self.kernel.totals.read(slot) {
                Ok(totals) => Some((slot, profiled.id, totals)),
                Err(error) => {
                    tracing::warn!("{error:#}");
                    None
                }
            })
            .collect();
        let lost = totals.iter().map(|(_, _, totals)| losses(totals)).sum();
        // Reading the cells is expensive, and they are seldom needed.
        let cells = match lost == self.observed_losses {
            true => FxHashMap::default(),
            false => self.lost_cells(),
        };
        self.observed_losses = lost;
        let mut sum = self.retired;
        for (slot, process, totals) in totals {
            sum.add(&totals);
            let cells = cells.get(&slot).map_or(&[][..], Vec::as_slice);
            // Read after the totals: a call that was charged at a ring level has counted its
            // level before.
            self.note_ring_pressure(slot);
            let bands = self.ingest.processes.get(process).bands();
            self.ingest.windows.observe(process, &by_class(&totals), &bands, cells);
        }
        sum
    }

    /// Lost samples by slot.
    pub(super) fn lost_cells(&self) -> FxHashMap<u32, Vec<(LostKey, LostCell)>> {
        let mut slots: FxHashMap<u32, Vec<(LostKey, LostCell)>> = FxHashMap::default();
        match self.kernel.lost.read() {
            Ok(cells) => {
                cells.into_iter().for_each(|cell| slots.entry(cell.0.slot).or_default().push(cell));
            }
            Err(error) => tracing::warn!("read the lost samples: {error}"),
        }
        slots
    }
}

fn losses(totals: &SlotTotals) -> u64 {
    LOSSES.map(|of| totals.outcome(of)).iter().sum()
}

/// Whether a process has lost samples.
pub(super) fn has_lost(totals: &SlotTotals) -> bool {
    losses(totals) > 0
}
