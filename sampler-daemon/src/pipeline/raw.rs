//! A profile without names: made on the worker's thread from the store and the kernel's totals.

use super::command::ProfileRequest;
use super::worker::Worker;
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, SamplingRecord, StackId};
use crate::unwind::Module;
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Moments, RowMoments};
use sampler_common::profile::{Exact, Kind};
use std::sync::Arc;
use std::time::SystemTime;

/// A frame without a name.
#[derive(Clone, Debug)]
pub enum RawFrame {
    /// A remark.
    Note(&'static str),
    /// Code: module, offset, and the name if it is a probed function's.
    Code(Arc<Module>, u64, Option<String>),
}

/// Samples that ended as a loss, with their allocation moments where these are known.
pub type RawLoss = (Outcome, u64, Option<RowMoments>);

/// A profile without names.
#[derive(Clone, Debug)]
pub struct RawProfile {
    /// What was asked.
    pub request: ProfileRequest,
    /// Time of the answer.
    pub time: SystemTime,
    /// How long the queried processes have been sampled, nanoseconds.
    pub duration_ns: u64,
    /// Interval in force, bytes.
    pub interval_bytes: f64,
    /// Largest interval that ever was in force, bytes.
    pub largest_interval_bytes: f64,
    /// Rows, largest first: pid, indices into `frames` (leaf first), moments.
    pub rows: Vec<(u32, Vec<u32>, RowMoments)>,
    /// Rows before the cut to the largest.
    pub rows_total: usize,
    /// Frames.
    pub frames: Vec<RawFrame>,
    /// Totals over all rows.
    pub totals: RowMoments,
    /// Exact totals.
    pub exact: Exact,
    /// Losses.
    pub lost: Vec<RawLoss>,
    /// Limits of what the numbers mean.
    pub notes: Vec<String>,
}

impl Worker {
    fn chosen(&self, pids: &[u32]) -> Result<Vec<ProcessId>, String> {
        if let Some(unknown) =
            pids.iter().find(|pid| !self.ingest.processes.iter().any(|(_, p)| p.pid == **pid))
        {
            return Err(format!("pid {unknown}: not profiled by this daemon (see: sampler ps)"));
        }
        let wanted = |pid: u32| pids.is_empty() || pids.contains(&pid);
        Ok(self.ingest.processes.iter().filter(|(_, p)| wanted(p.pid)).map(|(id, _)| id).collect())
    }

    pub(super) fn profile(&mut self, request: ProfileRequest) -> Result<RawProfile, String> {
        let chosen = self.chosen(&request.pids)?;
        self.settle();
        self.repair();
        let mut rows: FxHashMap<(ProcessId, StackId), RowMoments> = FxHashMap::default();
        for (key, moments) in self.ingest.rows.iter() {
            if chosen.contains(&key.process) {
                rows.entry((key.process, key.stack)).or_default().add(moments);
            }
        }
        for (_, live) in self.ingest.live.iter() {
            if chosen.contains(&live.process) {
                let row = rows.entry((live.process, live.stack)).or_default();
                row.add_live(&live.sample);
            }
        }
        let mut lost = RowMoments::default();
        for id in &chosen {
            let moments = self.lost_moments(*id);
            if moments.alloc_objects.samples > 0 {
                rows.entry((*id, StackId::LOST)).or_default().add(&moments);
                lost.add(&moments);
            }
        }
        let mut totals = RowMoments::default();
        rows.values().for_each(|row| totals.add(row));
        let exact = self.exact(&chosen);
        let (lost, notes) = self.losses(&chosen, lost);
        let mut profile = RawProfile {
            time: SystemTime::now(),
            duration_ns: self.duration_ns(&chosen),
            interval_bytes: self.interval_of(&chosen, |of| of.interval_bytes),
            largest_interval_bytes: self.interval_of(&chosen, |of| of.largest_interval_bytes),
            rows: Vec::new(),
            rows_total: 0,
            frames: Vec::new(),
            totals,
            exact,
            lost,
            notes,
            request,
        };
        self.fill_rows(&mut profile, rows);
        Ok(profile)
    }

    /// Orders and cuts the rows, and collects the frames of those that stay.
    fn fill_rows(
        &self,
        profile: &mut RawProfile,
        rows: FxHashMap<(ProcessId, StackId), RowMoments>,
    ) {
        let value = |row: &RowMoments| -> Moments {
            match profile.request.kind {
                Kind::Alloc => row.alloc_space,
                Kind::Live => row.inuse_space,
            }
        };
        let mut rows: Vec<_> = rows.into_iter().filter(|(_, row)| value(row).samples > 0).collect();
        // Ties in a fixed order, so that equal questions get equal answers.
        rows.sort_by(|(a, x), (b, y)| value(y).sum.total_cmp(&value(x).sum).then_with(|| a.cmp(b)));
        profile.rows_total = rows.len();
        if profile.request.top > 0 {
            rows.truncate(profile.request.top);
        }
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        for ((process, stack), moments) in rows {
            let frames = self
                .ingest
                .stacks
                .get(stack)
                .iter()
                .map(|number| {
                    *numbers.entry(*number).or_insert_with(|| {
                        profile.frames.push(self.raw_frame(*number));
                        profile.frames.len() as u32 - 1
                    })
                })
                .collect();
            profile.rows.push((self.ingest.processes.get(process).pid, frames, moments));
        }
    }

    fn raw_frame(&self, number: u32) -> RawFrame {
        match self.ingest.stacks.frame(number) {
            StackFrame::Note(note) => RawFrame::Note(note.name()),
            StackFrame::Code(frame) => RawFrame::Code(
                Arc::clone(self.ingest.modules.get(frame.module)),
                frame.offset,
                self.ingest.probe_names.get(&frame).cloned(),
            ),
        }
    }

    /// Losses of the chosen processes, and what they mean.
    fn losses(&self, chosen: &[ProcessId], ring: RowMoments) -> (Vec<RawLoss>, Vec<String>) {
        let mut lost = Vec::new();
        let mut notes = Vec::new();
        if ring.alloc_objects.samples > 0 {
            lost.push((Outcome::RingFull, ring.alloc_objects.samples, Some(ring)));
        }
        let kernel = self.kernel_totals();
        for outcome in [Outcome::LostCellsFull, Outcome::LiveFull, Outcome::RestoreFailed] {
            if kernel.outcome(outcome) > 0 {
                lost.push((outcome, kernel.outcome(outcome), None));
            }
        }
        if kernel.outcome(Outcome::LostCellsFull) > 0 {
            notes.push("allocated totals are a lower bound: lost samples could not be kept".into());
        }
        if let Some(since) = self.live_incomplete {
            let seconds = since
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |duration| duration.as_secs());
            notes.push(format!(
                "live numbers are a lower bound since Unix time {seconds}: the live set was full (raise --max-live)"
            ));
        }
        if !self.config.settings.track_live {
            notes.push("live numbers are 0: frees are not probed (--no-live)".into());
        }
        for id in chosen {
            let record = self.ingest.processes.get(*id);
            notes.extend(record.blind.iter().map(|blind| format!("pid {}: {blind}", record.pid)));
        }
        (lost, notes)
    }

    fn duration_ns(&self, chosen: &[ProcessId]) -> u64 {
        let now = SystemTime::now();
        chosen
            .iter()
            .map(|id| self.ingest.processes.get(*id))
            .filter_map(|record| record.exited.unwrap_or(now).duration_since(record.attached).ok())
            .map(|duration| duration.as_nanos() as u64)
            .max()
            .unwrap_or(0)
    }

    /// The largest interval of the chosen processes.
    fn interval_of(&self, chosen: &[ProcessId], of: impl Fn(&SamplingRecord) -> f64) -> f64 {
        chosen.iter().map(|id| of(&self.ingest.processes.get(*id).sampling)).fold(1.0, f64::max)
    }
}
