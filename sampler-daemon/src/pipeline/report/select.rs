//! Selects the processes of a request.

use crate::pipeline::records::ingest::Ingest;
use crate::store::{Criterion, ProcessId, Selector};

impl Ingest {
    /// The processes that a selector chooses, in the order of their attach.
    ///
    /// # Errors
    /// One line, if a pid of the selector is not profiled, or if the selector chooses no process.
    pub(super) fn chosen(&self, selector: &Selector) -> Result<Vec<ProcessId>, String> {
        let records = || self.processes.iter().filter(|(_, record)| !record.excluded);
        for criterion in &selector.criteria {
            if let Criterion::Pid(pid) = criterion
                && !records().any(|(_, record)| record.pid == *pid && record.exited_count == 0)
            {
                if self.processes.was_folded(*pid) {
                    return Err(format!(
                        "pid {pid}: exited long ago, its numbers are in the sums of its program (see: sampler ps)"
                    ));
                }
                return Err(format!("pid {pid}: not profiled by this daemon (see: sampler ps)"));
            }
        }
        let chosen: Vec<ProcessId> = records()
            .filter(|(_, record)| selector.matches(record.who()))
            .map(|(id, _)| id)
            .collect();
        if chosen.is_empty() && !selector.is_all() {
            return Err(format!("{selector}: no profiled process is that (see: sampler ps)"));
        }
        Ok(chosen)
    }
}
