//! What was lost on the way to a profile, and what limits the meaning of its numbers.

use super::gather::Gathered;
use super::raised::raised_notes;
use crate::pipeline::coverage::{Blind, grouped};
use crate::pipeline::worker::Worker;
use crate::store::{ProcessId, ProcessRecord};
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Estimator, Row};
use sampler_common::limits::EXTERNAL_PER_SECOND;
use sampler_common::units;

/// Samples that ended as a loss, with their rows where these are known.
pub type RawLoss = (Outcome, u64, Option<Row>);

/// Notes about processes; the kinds behind them are counted.
const MOST_NOTES: usize = 4;
const SAMPLES_ITSELF: &str = "samples by itself (otel_memory); exact totals are not known";
const UNHEARD: &str = "nothing has been heard of a library that samples in it: it has sampled nothing, or the library is not in it (it does not \
     enter static and setuid programs)";
const UNCALLED: &str = "it called no function that is probed: it allocated nothing, or in ways that are not seen (as static programs without symbols do)";
const INEXACT: &str = "its exact totals are not known, so it is weighted, not calibrated";

/// What is to be said of processes, each reason once and not too many.
fn few<'a>(lines: impl Iterator<Item = (u32, &'a str, &'a str)>) -> Vec<String> {
    let reasons = grouped(lines);
    let mut notes: Vec<String> = reasons.iter().take(MOST_NOTES).map(Blind::line).collect();
    if let Some(more) = reasons.len().checked_sub(MOST_NOTES).filter(|more| *more > 0) {
        notes.push(format!("and {more} more reasons why something is not seen (see: sampler ps)"));
    }
    notes
}

impl Worker {
    /// Of which processes back-pressure has raised the interval, how far and when.
    pub(super) fn raised(&self, processes: &[ProcessId]) -> Vec<String> {
        let clocks = self.clock.now();
        let records = processes.iter().map(|id| self.ingest.processes.get(*id));
        let raised = records.flat_map(|of| {
            let lines = raised_notes(&of.sampling, clocks).into_iter();
            lines.map(move |line| (of.pid, of.comm.as_str(), line))
        });
        let raised: Vec<_> = raised.collect();
        few(raised.iter().map(|(pid, comm, line)| (*pid, *comm, line.as_str())))
    }

    /// Losses, those in the ring of the gathered processes only.
    pub(super) fn losses(&self, gathered: &Gathered) -> Vec<RawLoss> {
        let mut lost = Vec::new();
        let samples = gathered.lost.total().alloc_objects.samples;
        if samples > 0 {
            lost.push((Outcome::RingFull, samples, Some(gathered.lost.clone())));
        }
        let kernel = self.kernel_totals();
        let others =
            [Outcome::LostCellsFull, Outcome::LiveFull, Outcome::RestoreFailed, Outcome::UsdtFlood];
        for outcome in others {
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
        let untold = self.kernel_totals().outcome(Outcome::LibraryFull);
        if untold > 0 {
            notes.push(format!(
                "held numbers are a lower bound: {} samples of preloaded processes found no room there (library_full in sampler status)",
                units::grouped(untold)
            ));
        }
        let unfollowed = self.kernel_totals().outcome(Outcome::PendingFull);
        if self.config.settings.track_live && unfollowed > 0 {
            notes.push(format!(
                "held numbers are a lower bound: {} sampled calls could not be followed to their end (pending_full in sampler status)",
                units::grouped(unfollowed)
            ));
        }
        let unreturned = self.kernel_totals().outcome(Outcome::ReturnUnprobed);
        if self.config.settings.track_live && unreturned > 0 {
            notes.push(format!(
                "held numbers are a lower bound: {} sampled calls of threads with Syscall User Dispatch were seen at their entry only (return_unprobed in sampler status)",
                units::grouped(unreturned)
            ));
        }
        if let Some(since) = self.live_incomplete {
            let seconds = since
                .duration_since(std::time::SystemTime::UNIX_EPOCH)
                .map_or(0, |duration| duration.as_secs());
            notes.push(format!(
                "live numbers are a lower bound since Unix time {seconds}: the live set was full (raise --max-live)"
            ));
        }
        if !self.config.settings.track_live && self.config.windows.is_none() {
            notes.push(
                "what is held is not known, and told as 0: frees are not probed (--no-live)".into(),
            );
        }
        let unseen = self.kernel.state().unseen_calls();
        if unseen > 0 {
            notes.push(format!(
                "a lower bound: {} calls of further processes found no slot free (raise --max-processes)",
                units::grouped(unseen)
            ));
        }
        notes.extend(self.held_notes());
        let record = |id| self.ingest.processes.get(id);
        let orphaned = self.orphaned(&gathered.processes);
        notes.extend(few(orphaned.iter().map(|(id, line)| {
            let of = record(*id);
            (of.pid, of.comm.as_str(), line.as_str())
        })));
        let processes = || gathered.processes.iter().map(|id| record(*id));
        let flooded = format!(
            "sent more than {EXTERNAL_PER_SECOND} samples of its own a second: what is told of it is a lower bound, and no interval has an upper end (usdt_flood in sampler status)"
        );
        notes.extend(few(processes()
            .filter(|of| of.sampling.is_flooded)
            .map(|of| (of.pid, of.comm.as_str(), flooded.as_str()))));
        notes.extend(self.raised(&gathered.processes));
        if estimator == Estimator::Calibrated {
            let inexact = gathered.inexact.iter().map(|id| record(*id));
            notes.extend(few(inexact.map(|of| (of.pid, of.comm.as_str(), INEXACT))));
        }
        let itself = processes().filter(|of| of.sampling.samples_itself);
        let line = |of: &ProcessRecord| match of.sampling.is_unheard() {
            true => UNHEARD,
            false => SAMPLES_ITSELF,
        };
        notes.extend(few(itself.map(|of| (of.pid, of.comm.as_str(), line(of)))));
        // The whole of a process before parts of others.
        for refused in [true, false] {
            let lines = processes().filter(|of| of.refused == refused).flat_map(|of| {
                of.blind.iter().map(|line| (of.pid, of.comm.as_str(), line.as_str()))
            });
            notes.extend(few(lines));
        }
        // Of the others it is known why.
        let uncalled = gathered.uncalled.iter().map(|id| record(*id));
        let uncalled = uncalled.filter(|of| of.blind.is_empty());
        notes.extend(few(uncalled.map(|of| (of.pid, of.comm.as_str(), UNCALLED))));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_stay_few() {
        let reasons: Vec<String> = (0..9).map(|reason| format!("reason {reason}")).collect();
        let lines = (0..600).map(|pid| (pid, "cc1", reasons[pid as usize % 9].as_str()));
        let notes = few(lines);
        assert_eq!(notes.len(), MOST_NOTES + 1);
        assert_eq!(notes[0], "67 processes (cc1 0, cc1 9, cc1 18, …): reason 0");
        assert!(notes[4].starts_with("and 5 more reasons"), "{}", notes[4]);
        assert_eq!(few([(7, "x", INEXACT)].into_iter()), [format!("pid 7: {INEXACT}")]);
        assert!(few(std::iter::empty()).is_empty());
    }
}
