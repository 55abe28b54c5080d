//! Totals of the kernel side: exact ones, outcomes, and samples whose record was lost.

use super::worker::Worker;
use crate::bpf::totals::SlotTotals;
use crate::store::ProcessId;
use sampler_common::estimate::RowMoments;
use sampler_common::profile::Exact;
use sampler_common::sampling::Design;
use sampler_common::wire::{LostCell, LostKey};

impl Worker {
    pub(super) fn slot_of(&self, id: ProcessId) -> Option<u32> {
        self.ingest.sources.iter().find(|(_, source)| source.process == id).map(|(slot, _)| *slot)
    }

    /// Totals of all slots, vacant ones included.
    pub(super) fn kernel_totals(&self) -> SlotTotals {
        let mut sum = self.retired;
        for slot in self.attached.keys() {
            match self.kernel.totals.read(*slot) {
                Ok(totals) => sum.add(&totals),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        sum
    }

    pub(super) fn slot_exact(&self, slot: u32) -> Exact {
        match self.kernel.totals.read(slot) {
            Ok(totals) => Exact {
                alloc_objects: totals.objects.iter().sum(),
                alloc_space: totals.bytes.iter().sum(),
            },
            Err(error) => {
                tracing::warn!("{error:#}");
                Exact::default()
            }
        }
    }

    pub(super) fn exact(&self, chosen: &[ProcessId]) -> Exact {
        let mut sum = Exact::default();
        for id in chosen {
            let exact = match self.slot_of(*id) {
                Some(slot) => self.slot_exact(slot),
                None => self.ingest.processes.get(*id).final_exact,
            };
            sum.alloc_objects += exact.alloc_objects;
            sum.alloc_space += exact.alloc_space;
        }
        sum
    }

    pub(super) fn lost_moments(&self, id: ProcessId) -> RowMoments {
        match self.slot_of(id) {
            Some(slot) => self.slot_lost_moments(slot),
            None => self.ingest.processes.get(id).final_lost,
        }
    }

    /// Moments of the samples of a slot whose record was lost.
    pub(super) fn slot_lost_moments(&self, slot: u32) -> RowMoments {
        let cells = match self.kernel.lost.read() {
            Ok(cells) => cells,
            Err(error) => {
                tracing::warn!("read the lost samples: {error}");
                return RowMoments::default();
            }
        };
        let mut sum = RowMoments::default();
        for (key, cell) in cells.iter().filter(|(key, _)| key.slot == slot) {
            add_cell(&mut sum, key, cell);
        }
        sum
    }
}

/// The samples of a cell, each taken at the cell's mean size.
fn add_cell(sum: &mut RowMoments, key: &LostKey, cell: &LostCell) {
    let design = Design::from_word(key.design);
    sum.add_lost(design, cell.samples, cell.bytes, cell.hits, cell.tails);
}
