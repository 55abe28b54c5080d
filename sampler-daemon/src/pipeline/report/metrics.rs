//! Metrics of the daemon and of every process at one moment: counts that only grow, no rows. They
//! are cheap enough to be requested every few seconds.

use super::status::StatusReport;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::cost::Work;
use sampler_common::profile::Exact;
use std::time::SystemTime;

/// A process, or exited ones that were folded into one.
#[derive(Clone, Debug)]
pub struct ProcessMetrics {
    /// Process id; 0 of folded ones.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// When the process was attached: with the pid it identifies the process.
    pub attached: SystemTime,
    /// Whether the process runs.
    pub is_running: bool,
    /// Work of the process's probes.
    pub work: Work,
    /// Samples read.
    pub samples: u64,
    /// Counts of malloc's probes.
    pub exact: Exact,
    /// Whether `exact` is all that the process has allocated: it does not sample by itself.
    pub is_counted: bool,
}

/// Metrics at one moment.
#[derive(Clone, Debug)]
pub struct MetricsReport {
    /// The daemon.
    pub status: StatusReport,
    /// Every process that is or was profiled.
    pub processes: Vec<ProcessMetrics>,
    /// Processes that were folded into records of programs.
    pub folded: u64,
}

impl MetricsReport {
    /// Reads CPU times; not on the worker's thread.
    pub(in crate::pipeline) fn read_processor(self) -> MetricsReport {
        MetricsReport { status: self.status.read_processor(), ..self }
    }
}

impl Worker {
    pub(super) fn metrics(&self) -> MetricsReport {
        let status = self.status();
        let slots: FxHashMap<ProcessId, u32> =
            self.ingest.table.iter().map(|(slot, profiled)| (profiled.id, slot)).collect();
        let all = self.ingest.processes.iter().filter(|(_, record)| !record.excluded);
        let processes = all.map(|(id, record)| {
            let slot = slots.get(&id).copied().filter(|_| record.exited.is_none());
            let (work, exact) = match slot {
                Some(slot) => {
                    let totals = self.exact_of_slot(slot);
                    (self.work_of_slot(slot), totals.map(|of| of.sum()).unwrap_or_default())
                }
                None => {
                    let totals = record.final_totals.as_ref();
                    (record.spending.work, totals.map(|of| of.sum()).unwrap_or_default())
                }
            };
            ProcessMetrics {
                pid: record.pid,
                comm: record.comm.clone(),
                attached: record.attached,
                is_running: slot.is_some(),
                work,
                samples: record.spending.samples,
                exact,
                is_counted: !record.sampling.samples_itself,
            }
        });
        let processes = processes.collect();
        MetricsReport { status, processes, folded: self.ingest.processes.usage().2 }
    }
}
