//! Totals of the kernel side: exact totals, outcomes, and samples whose record was lost.

use super::worker::Worker;
use crate::bpf::maps::totals::SlotTotals;
use crate::pipeline::records::ingest::Ingest;
use crate::store::{ClassTotals, LostMoments, ProcessId, SizeCell};
use rustc_hash::FxHashMap;
use sampler_common::estimate::RowMoments;
use sampler_common::sampling::Design;
use sampler_common::wire::{LostCell, LostKey};
use std::collections::BTreeMap;

impl Worker {
    /// Totals of all slots, vacant ones included.
    pub(super) fn kernel_totals(&self) -> SlotTotals {
        let mut sum = self.retired;
        for (slot, ..) in self.ingest.table.all_attached() {
            match self.kernel.totals.read(slot) {
                Ok(totals) => sum.add(&totals),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        sum
    }

    /// Exact totals of each process now, or at its exit; `None` if they cannot be read.
    pub(super) fn exact(&self, processes: &[ProcessId]) -> Vec<Option<ClassTotals>> {
        let of = |id: &ProcessId| match self.ingest.slot_of(*id) {
            Some(slot) => self.exact_of_slot(slot),
            None => self.ingest.processes.get(*id).final_totals.as_deref().copied(),
        };
        processes.iter().map(of).collect()
    }

    /// Exact totals of the process in a slot; `None` if they cannot be read.
    pub(super) fn exact_of_slot(&self, slot: u32) -> Option<ClassTotals> {
        match self.kernel.totals.read(slot) {
            Ok(totals) => Some(by_class(&totals)),
            Err(error) => {
                tracing::warn!("{error:#}");
                None
            }
        }
    }

    /// Lost samples of each process. The kernel's cells are read only once.
    pub(super) fn lost(&self, processes: &[ProcessId]) -> Vec<LostMoments> {
        let mut by_slot = self.lost_by_slot();
        let of = |id: &ProcessId| match self.ingest.slot_of(*id) {
            Some(slot) => by_slot.remove(&slot).unwrap_or_default(),
            None => self.ingest.processes.get(*id).final_lost.clone(),
        };
        processes.iter().map(of).collect()
    }

    /// Lost samples of each slot that has any.
    pub(super) fn lost_by_slot(&self) -> FxHashMap<u32, LostMoments> {
        match self.kernel.lost.read() {
            Ok(cells) => sum_cells(&cells),
            Err(error) => {
                tracing::warn!("read the lost samples: {error}");
                FxHashMap::default()
            }
        }
    }
}

impl Ingest {
    /// The slot of a running process.
    pub(super) fn slot_of(&self, id: ProcessId) -> Option<u32> {
        if self.processes.get(id).exited.is_some() {
            return None;
        }
        self.table.iter().find(|(_, profiled)| profiled.id == id).map(|(slot, _)| slot)
    }
}

/// The allocations of a slot.
pub(super) fn by_class(totals: &SlotTotals) -> ClassTotals {
    ClassTotals { bytes: totals.bytes, objects: totals.objects }
}

/// The samples of each cell, at the cell's mean size and in its size class.
fn sum_cells(cells: &[(LostKey, LostCell)]) -> FxHashMap<u32, LostMoments> {
    let mut slots: FxHashMap<u32, BTreeMap<SizeCell, RowMoments>> = FxHashMap::default();
    for (key, cell) in cells.iter().filter(|(_, cell)| cell.samples > 0) {
        let mean = (cell.bytes as f64 / cell.samples as f64).round() as u64;
        let cell_of_sizes = SizeCell::of(mean);
        let design = Design::from_word(key.design);
        let sum = slots.entry(key.slot).or_default().entry(cell_of_sizes).or_default();
        sum.add_lost(design, cell.samples, cell.bytes, cell.hits, cell.tails);
    }
    slots.into_iter().map(|(slot, classes)| (slot, classes.into_iter().collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::sampling::{Rate, Strategy, size_bucket};

    fn cell(slot: u32, size: u64, samples: u64) -> (LostKey, LostCell) {
        let rate = Rate::from_interval(4096).unwrap();
        let design = Design::new(Strategy::Geometric, rate).word();
        let key = LostKey { design, slot, bucket: size_bucket(size) };
        (key, LostCell { samples, bytes: size * samples, hits: samples, tails: samples })
    }

    #[test]
    fn lost_samples_keep_slot_and_class() {
        let cells =
            [cell(3, 100, 2), cell(3, 101, 1), cell(3, 5000, 4), cell(9, 0, 1), cell(9, 7, 0)];
        let slots = sum_cells(&cells);
        let counts = |slot: u32| -> Vec<(u8, u64)> {
            let moments = slots[&slot].iter();
            moments.map(|(cell, of)| (cell.class, of.alloc_objects.samples)).collect()
        };
        assert_eq!(slots.len(), 2);
        let class = |size| SizeCell::of(size).class;
        assert_eq!(counts(3), [(class(100), 3), (class(5000), 4)]);
        assert_eq!(counts(9), [(0, 1)]);
        assert_eq!(slots[&3][0].1.alloc_space.own, 301.0);
    }
}
