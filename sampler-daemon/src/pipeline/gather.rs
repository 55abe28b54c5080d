//! What is known of some processes at one moment: their rows in strata, and what estimates are made against.

use super::worker::Worker;
use crate::store::{ClassTotals, LostMoments, ProcessId, ProcessRecord, SamplingRecord, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Reference, Row, Stratum, StratumTotals};
use sampler_common::profile::Exact;
use sampler_common::sampling;

/// Some processes at one moment.
pub(super) struct Gathered {
    /// The processes; their place here is that in [`Stratum::process`].
    pub(super) processes: Vec<ProcessId>,
    /// Every row, samples without a stack under [`StackId::LOST`].
    pub(super) rows: FxHashMap<(ProcessId, StackId), Row>,
    /// The samples whose record was lost, part of `rows`.
    pub(super) lost: Row,
    /// Sums over all rows, and exact totals.
    pub(super) reference: Reference,
    /// Exact totals over all size classes.
    pub(super) exact: Exact,
    /// Processes whose exact totals could not be read.
    pub(super) inexact: Vec<ProcessId>,
}

impl Worker {
    /// Everything that returned before the call.
    pub(super) fn gather(&mut self, processes: Vec<ProcessId>) -> Gathered {
        self.settle();
        self.repair();
        // Unwinding what had piled up took its time. What has come meanwhile is little: behind it samples and exact
        // totals are of the same moment.
        self.drain();
        let exact = self.exact(&processes);
        let lost = self.lost(&processes);
        let mut gathered = Gathered {
            rows: FxHashMap::default(),
            lost: Row::default(),
            reference: Reference::default(),
            exact: Exact::default(),
            inexact: Vec::new(),
            processes,
        };
        self.add_rows(&mut gathered);
        gathered.add_lost(&lost);
        let Gathered { rows, reference, .. } = &mut gathered;
        rows.values().for_each(|row| reference.add(row));
        for (index, exact) in exact.iter().enumerate() {
            let id = gathered.processes[index];
            gathered.add_totals(index as u32, self.ingest.processes.get(id), exact.as_ref());
            if exact.is_none() {
                gathered.inexact.push(id);
            }
        }
        gathered
    }

    /// Sampled allocations and live samples.
    fn add_rows(&self, gathered: &mut Gathered) {
        let index: FxHashMap<ProcessId, u32> =
            (0..).zip(&gathered.processes).map(|(index, id)| (*id, index)).collect();
        let rows = &mut gathered.rows;
        for (key, moments) in self.ingest.rows.iter() {
            let Some(process) = index.get(&key.process) else { continue };
            let row = rows.entry((key.process, key.stack)).or_default();
            row.stratum(Stratum { process: *process, class: key.cell.class }).add(moments);
        }
        for (_, live) in self.ingest.live.iter() {
            let Some(process) = index.get(&live.process) else { continue };
            let class = sampling::class(live.sample.size) as u8;
            let row = rows.entry((live.process, live.stack)).or_default();
            row.stratum(Stratum { process: *process, class }).add_live(&live.sample);
        }
    }
}

impl Gathered {
    /// Exact totals of one process.
    pub(super) fn exact_of(&self, process: u32) -> Exact {
        let mut sum = Exact::default();
        for (_, totals) in self.reference.strata.iter().filter(|(of, _)| of.process == process) {
            let (bytes, objects) = totals.exact.unwrap_or_default();
            sum.alloc_space += bytes;
            sum.alloc_objects += objects;
        }
        sum
    }

    /// Samples whose record was lost, those of each process in turn.
    fn add_lost(&mut self, lost: &[LostMoments]) {
        for (process, (id, lost)) in (0..).zip(self.processes.iter().zip(lost)) {
            for (class, moments) in lost {
                let stratum = Stratum { process, class: *class };
                self.rows.entry((*id, StackId::LOST)).or_default().stratum(stratum).add(moments);
                self.lost.stratum(stratum).add(moments);
            }
        }
    }

    /// Exact totals of a process, and what of it goes unseen.
    fn add_totals(&mut self, process: u32, record: &ProcessRecord, exact: Option<&ClassTotals>) {
        let SamplingRecord { unseen, largest_interval_bytes, .. } = &record.sampling;
        self.reference.interval_bytes = self.reference.interval_bytes.max(*largest_interval_bytes);
        if let Some(totals) = exact {
            let sum = totals.sum();
            self.exact.alloc_objects += sum.alloc_objects;
            self.exact.alloc_space += sum.alloc_space;
        }
        for (class, unseen) in unseen.iter().enumerate() {
            let exact = exact.map(|totals| (totals.bytes[class], totals.objects[class]));
            let stratum = Stratum { process, class: class as u8 };
            // Nothing was allocated in it, and that is certain.
            if exact == Some((0, 0)) && !self.reference.strata.contains_key(&stratum) {
                continue;
            }
            let totals: &mut StratumTotals = self.reference.strata.entry(stratum).or_default();
            totals.exact = exact;
            (totals.unseen_objects, totals.unseen_bytes) = *unseen;
        }
    }
}
