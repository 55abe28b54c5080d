//! What was lost on the way to a profile, and what limits the meaning of its numbers.

use super::gather::Gathered;
use super::worker::Worker;
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Estimator, Row};

/// Samples that ended as a loss, with their rows where these are known.
pub type RawLoss = (Outcome, u64, Option<Row>);

impl Worker {
    /// Losses, those in the ring of the gathered processes only.
    pub(super) fn losses(&self, gathered: &Gathered) -> Vec<RawLoss> {
        let mut lost = Vec::new();
        let samples = gathered.lost.total().alloc_objects.samples;
        if samples > 0 {
            lost.push((Outcome::RingFull, samples, Some(gathered.lost.clone())));
        }
        let kernel = self.kernel_totals();
        for outcome in [Outcome::LostCellsFull, Outcome::LiveFull, Outcome::RestoreFailed] {
            if kernel.outcome(outcome) > 0 {
                lost.push((outcome, kernel.outcome(outcome), None));
            }
        }
        lost
    }

    /// Whatever limits what the numbers mean.
    pub(super) fn notes(
        &self,
        gathered: &Gathered,
        losses: &[RawLoss],
        estimator: Estimator,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if losses.iter().any(|(outcome, ..)| *outcome == Outcome::LostCellsFull) {
            notes.push("allocated totals are a lower bound: lost samples could not be kept".into());
        }
        if let Some(since) = self.live_incomplete {
            let seconds = since
                .duration_since(std::time::SystemTime::UNIX_EPOCH)
                .map_or(0, |duration| duration.as_secs());
            notes.push(format!(
                "live numbers are a lower bound since Unix time {seconds}: the live set was full (raise --max-live)"
            ));
        }
        if !self.config.settings.track_live {
            notes.push("live numbers are 0: frees are not probed (--no-live)".into());
        }
        let record = |id| self.ingest.processes.get(id);
        if estimator == Estimator::Calibrated {
            notes.extend(gathered.inexact.iter().map(|id| {
                let pid = record(*id).pid;
                format!(
                    "pid {pid}: its exact totals are not known, so it is weighted, not calibrated"
                )
            }));
        }
        for record in gathered.processes.iter().map(|id| record(*id)) {
            notes.extend(record.blind.iter().map(|blind| format!("pid {}: {blind}", record.pid)));
        }
        notes
    }
}
