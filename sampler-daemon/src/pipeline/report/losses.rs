//! Losses on the way to a profile, and limits of what its numbers mean.

use super::gather::Gathered;
use super::leaks::unix_ns;
use super::notes::raised::raised;
use crate::pipeline::processes::coverage::{Case, grouped};
use crate::pipeline::worker::Worker;
use crate::store::{ProcessId, ProcessRecord};
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Estimator, Row};
use sampler_common::note::{Loss, Note, Reason};

/// A loss: the outcome, the number of samples, and their row if it is known.
pub type RawLoss = (Outcome, u64, Option<Row>);

/// Largest number of notes about processes; further reasons are counted.
const MAX_NOTES: usize = 4;

/// Notes on processes: each reason once, at most [`MAX_NOTES`].
fn few<'a>(cases: impl Iterator<Item = Case<'a>>) -> Vec<Note> {
    let reasons = grouped(cases);
    let more = reasons.len().checked_sub(MAX_NOTES).filter(|more| *more > 0);
    let notes = reasons.into_iter().take(MAX_NOTES).map(Note::Processes);
    notes.chain(more.map(Note::MoreReasons)).collect()
}

/// A reason that applies to a whole process.
fn of(record: &ProcessRecord, reason: Reason) -> Case<'_> {
    Case { pid: record.pid, comm: &record.comm, place: "", reason }
}

impl Worker {
    /// Notes on processes whose interval back-pressure has raised: how far and when.
    pub(super) fn raised(&self, processes: &[ProcessId]) -> Vec<Note> {
        let clocks = self.clock.now();
        let records = processes.iter().map(|id| self.ingest.processes.get(*id));
        few(records.flat_map(|record| {
            raised(&record.sampling, clocks).map(move |reason| of(record, reason))
        }))
    }

    /// Losses. Ring losses are those of the gathered processes only.
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

    /// All limits of what the numbers mean.
    pub(super) fn notes(
        &self,
        gathered: &Gathered,
        losses: &[RawLoss],
        estimator: Estimator,
    ) -> Vec<Note> {
        let kernel = self.kernel_totals();
        let has_live = self.config.settings.track_live;
        let of_live = |outcome| if has_live { kernel.outcome(outcome) } else { 0 };
        let mut notes = Vec::new();
        if losses.iter().any(|(outcome, ..)| *outcome == Outcome::LostCellsFull) {
            notes.push(Note::Loss(Loss::LostCells));
        }
        notes.extend(Note::counted(kernel.outcome(Outcome::LibraryFull), Loss::LibraryFull));
        notes.extend(Note::counted(of_live(Outcome::PendingFull), Loss::PendingFull));
        notes.extend(Note::counted(of_live(Outcome::ReturnUnprobed), Loss::ReturnUnprobed));
        if let Some(since) = self.balance.live_incomplete {
            notes.push(Note::Loss(Loss::LiveFull(unix_ns(since))));
        }
        if !has_live && self.config.windows.is_none() {
            notes.push(Note::Loss(Loss::FreesUnprobed));
        }
        notes.extend(Note::counted(self.kernel.state().unseen_calls(), Loss::NoSlot));
        notes.extend(self.held_notes());
        self.add_reasons(&mut notes, gathered, estimator);
        notes
    }

    /// Adds notes on single processes.
    fn add_reasons(&self, notes: &mut Vec<Note>, gathered: &Gathered, estimator: Estimator) {
        let record = |id: &ProcessId| self.ingest.processes.get(*id);
        let processes = || gathered.processes.iter().map(record);
        let orphaned = processes().filter_map(|record| Some(of(record, Worker::orphaned(record)?)));
        notes.extend(few(orphaned));
        let flooded = processes().filter(|of| of.sampling.is_flooded);
        notes.extend(few(flooded.map(|record| of(record, Reason::Flooded))));
        notes.extend(self.raised(&gathered.processes));
        if estimator == Estimator::Calibrated {
            let inexact = gathered.inexact.iter().map(record);
            notes.extend(few(inexact.map(|record| of(record, Reason::Inexact))));
        }
        let itself = processes().filter(|of| of.sampling.samples_itself);
        notes.extend(few(itself.map(|record| match record.sampling.has_no_reports() {
            true => of(record, Reason::NoReports),
            false => of(record, Reason::SamplesItself),
        })));
        // Reasons for whole processes come before reasons for parts.
        for refused in [true, false] {
            let records = processes().filter(|of| of.refused == refused);
            let blind_spots = records.flat_map(|record| {
                record.blind_spots.iter().map(|of| Case::blind_spot(record.pid, &record.comm, of))
            });
            notes.extend(few(blind_spots));
        }
        // For processes with blind spots the reason is known.
        let uncalled = gathered.uncalled.iter().map(record).filter(|of| of.blind_spots.is_empty());
        notes.extend(few(uncalled.map(|record| of(record, Reason::Uncalled))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_notes_is_bounded() {
        let reason = |pid: u32| Reason::BlindSpot(format!("reason {}", pid % 9));
        let reasons = (0..600).map(|pid| Case { pid, comm: "cc1", place: "", reason: reason(pid) });
        let notes = few(reasons);
        let Note::Processes(first) = &notes[0] else { panic!("{:?}", notes[0]) };
        assert_eq!((&first.reason, first.count), (&reason(0), 67));
        assert_eq!(notes[MAX_NOTES..], [Note::MoreReasons(5)]);
        assert!(few(std::iter::empty()).is_empty());
    }
}
