//! A profile without names. It is made on the worker's thread from the store and the kernel's
//! totals.

use super::gather::Gathered;
use super::losses::RawLoss;
use super::notes::unexplained::Compared;
use super::order::leave_out;
use super::scope::{Borders, Scope};
use crate::pipeline::command::ProfileRequest;
use crate::pipeline::cost::UnreadCost;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, ProcessRecord, SamplingRecord, StackId};
use crate::unwind::{Frame, Module};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Estimator, Reference, Row, RowMoments};
use sampler_common::note::Note;
use sampler_common::profile::{Exact, Kind, ProcessName, Window};
use sampler_common::sampling::Strategy;
use sampler_common::source::{SampleSource, SampleSources, SourceGroup};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// A frame without a name.
#[derive(Clone, Debug)]
pub enum RawFrame {
    /// A note.
    Note(&'static str),
    /// Code: module, offset, and the name if it is a probed function's.
    Code(Arc<Module>, u64, Option<String>),
}

/// A stack of a process.
#[derive(Clone, Debug)]
pub struct RawRow {
    /// The process.
    pub pid: u32,
    /// Indices into [`RawProfile::frames`], leaf first.
    pub frames: Vec<u32>,
    /// The row's moments.
    pub row: Row,
}

/// The program of a process, or of exited processes that were folded into one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// Path of the executable; empty if unknown.
    pub exe: String,
    /// Command name.
    pub comm: String,
    /// Path of the control group.
    pub cgroup: String,
    /// Id or name of the container; empty outside of containers.
    pub container: String,
    /// Name of the service in telemetry; empty if the program was not given one.
    pub service: String,
}

/// A profile without names.
#[derive(Clone, Debug)]
pub struct RawProfile {
    /// The request.
    pub request: ProfileRequest,
    /// The requested estimator, or the default. It exists for every strategy below but stride,
    /// which has none.
    pub estimator: Estimator,
    /// Every strategy with which the processes were ever sampled.
    pub strategies: Vec<Strategy>,
    /// Where the samples of the processes come from.
    pub sources: Vec<SourceGroup>,
    /// Time of the answer.
    pub time: SystemTime,
    /// How long the queried processes have been sampled, or how long the window is, nanoseconds.
    pub duration_ns: u64,
    /// The time window actually used.
    pub window: Option<Window>,
    /// The window's borders of time slots.
    pub borders: Option<Borders>,
    /// Interval in force, bytes.
    pub interval_bytes: f64,
    /// Pids of the processes, in the order of [`sampler_common::estimate::Stratum::process`].
    pub pids: Vec<u32>,
    /// The programs of the processes, in the order of `pids`.
    pub programs: Vec<Program>,
    /// Names of the processes, by pid.
    pub process_names: BTreeMap<u32, ProcessName>,
    /// All rows with samples of the requested kind, in a fixed order.
    pub rows: Vec<RawRow>,
    /// Number of smaller rows that are left out already.
    pub left_out: usize,
    /// Frames.
    pub frames: Vec<RawFrame>,
    /// All rows together, of either kind.
    pub totals: Row,
    /// Sums over all rows, and exact totals, by stratum.
    pub reference: Reference,
    /// Exact totals; `None` if size limits cut a size class in two.
    pub exact: Option<Exact>,
    /// Losses.
    pub lost: Vec<RawLoss>,
    /// Limits of what the numbers mean.
    pub notes: Vec<Note>,
    /// Pid and start of the running processes, if their memory is to be compared with held memory.
    pub running: Vec<(u32, u64)>,
    /// Processes whose memory is to be compared with what they hold.
    pub compared: Vec<Compared>,
    /// Cost of profiling the processes since their attach.
    pub cost: UnreadCost,
}

impl Worker {
    pub(super) fn profile(&self, request: ProfileRequest) -> Result<RawProfile, String> {
        let chosen = self.ingest.chosen(&request.selector)?;
        let capabilities = self.config.capabilities();
        capabilities.kind(request.kind)?;
        if request.kind == Kind::Mapped {
            return self.mapped_profile(request, chosen);
        }
        if request.scope != Scope::ALL {
            capabilities.whole("a part of the profile (--last, --since, --until, --min-age, --max-age, --min-size, --max-size)")?;
        }
        let strategies = self.ingest.strategies(&chosen, request.estimator)?;
        if self.config.windows.is_some()
            && request.estimator.is_some_and(|of| of != Estimator::Weighted)
        {
            return Err("what is seen in windows is weighted (samplerd runs with --windows; leave the estimator out)".into());
        }
        let estimator = request.estimator.unwrap_or_default();
        request.scope.check(request.kind, estimator)?;
        let gathered = self.gather(chosen, request.kind, &request.scope)?;
        let lost = self.losses(&gathered);
        let mut notes = self.notes(&gathered, &lost, estimator);
        notes.extend(self.ingest.missing_notes(&gathered, request.kind));
        notes.extend(request.scope.notes(request.kind));
        notes.extend(self.window_notes(&gathered));
        let cost = self.costs(&gathered.processes, request.confidence);
        notes.extend(self.frees_note(&gathered.processes, &cost, &request));
        let mut window = gathered.window;
        if request.kind == Kind::Peak {
            window = self.ingest.peak_window(&gathered);
            notes.extend(self.ingest.peak_notes(&gathered));
        }
        let compared = match (request.kind, request.scope == Scope::ALL) {
            (Kind::Alloc | Kind::Live, true) => self.compared(&gathered.processes),
            _ => Vec::new(),
        };
        let running = self.ingest.running_for_rss(&gathered.processes, &request);
        if !running.is_empty() {
            notes.extend(self.usable_note(&gathered.processes, request.confidence));
        }
        let mut profile = RawProfile {
            estimator,
            strategies,
            sources: self.ingest.sources_of(&gathered.processes),
            time: SystemTime::now(),
            duration_ns: window
                .map_or_else(|| self.ingest.duration_ns(&gathered.processes), |of| of.length_ns()),
            window,
            borders: gathered.borders,
            interval_bytes: self.ingest.interval_of(&gathered.processes, |of| of.interval_bytes),
            pids: self.ingest.pids_of(&gathered.processes),
            programs: self.ingest.programs(&gathered.processes),
            process_names: self.ingest.process_names(&gathered.processes),
            rows: Vec::new(),
            left_out: 0,
            frames: Vec::new(),
            totals: gathered.reference.row(),
            exact: gathered.exact,
            lost,
            notes,
            running,
            compared,
            cost,
            reference: Reference::default(),
            request,
        };
        self.fill_rows(&mut profile, gathered);
        Ok(profile)
    }

    /// Fills in the rows with samples of the requested kind, with their frames.
    pub(super) fn fill_rows(&self, profile: &mut RawProfile, gathered: Gathered) {
        let kind = profile.request.kind;
        let samples = |of: &RowMoments| match kind {
            Kind::Alloc => of.alloc_space.samples,
            Kind::Live | Kind::Peak => of.inuse_space.samples,
            // Includes memory that is not mapped any more.
            Kind::Mapped => of.alloc_space.samples + of.inuse_space.samples,
        };
        let has_samples = |row: &Row| row.strata().any(|(_, of)| samples(of) > 0);
        profile.reference = gathered.reference;
        let mut rows: Vec<((ProcessId, StackId), Row)> =
            gathered.rows.into_iter().filter(|(_, row)| has_samples(row)).collect();
        // Functions are summed over all rows.
        if profile.estimator == Estimator::Weighted && profile.request.functions == 0 {
            profile.left_out = leave_out(&mut rows, kind, profile.request.top);
        }
        // Sorted, so that equal requests get equal answers.
        rows.sort_by_key(|(key, _)| *key);
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        for ((process, stack), row) in rows {
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
            let pid = self.ingest.processes.get(process).pid;
            profile.rows.push(RawRow { pid, frames, row });
        }
    }

    pub(super) fn raw_frame(&self, number: u32) -> RawFrame {
        match self.ingest.stacks.frame(number) {
            StackFrame::Note(note) => RawFrame::Note(note.name()),
            StackFrame::Code(frame) => RawFrame::Code(
                Arc::clone(self.ingest.modules.get(frame.module)),
                frame.offset,
                self.probe_name(frame).cloned(),
            ),
        }
    }

    /// The name by which a function is probed. Samples may arrive before their process's mappings
    /// are known, but its shared links exist by then.
    fn probe_name(&self, frame: Frame) -> Option<&String> {
        self.ingest.probe_names.get(&frame).or_else(|| {
            let path = &self.ingest.modules.get(frame.module).path;
            self.links.shared.allocators().find_map(|of| of.probed_at(path, frame.offset))
        })
    }
}

impl Ingest {
    /// Every strategy with which `processes` were ever sampled; an error if the estimator does not
    /// exist for one of them.
    pub(super) fn strategies(
        &self,
        processes: &[ProcessId],
        estimator: Option<Estimator>,
    ) -> Result<Vec<Strategy>, String> {
        let mut strategies = Vec::new();
        for record in processes.iter().map(|id| self.processes.get(*id)) {
            for strategy in &record.sampling.strategies {
                if let Some(Err(error)) = estimator.map(|of| of.check(*strategy)) {
                    return Err(format!("{}: {error}", record.label()));
                }
                if !strategies.contains(strategy) {
                    strategies.push(*strategy);
                }
            }
        }
        Ok(strategies)
    }

    /// Where the samples of these processes come from.
    pub(super) fn sources_of(&self, processes: &[ProcessId]) -> Vec<SourceGroup> {
        let records = processes.iter().map(|id| self.processes.get(*id));
        SourceGroup::of(records.map(|of| (of.sources(), of.exited_count.max(1))))
    }

    /// As [`Ingest::sources_of`], for calls that map memory: only uprobes see them.
    pub(super) fn sources_of_mappings(&self, processes: &[ProcessId]) -> Vec<SourceGroup> {
        let records = processes.iter().map(|id| self.processes.get(*id));
        let only = |of: SampleSources| of.only(SampleSource::Uprobes);
        SourceGroup::of(records.map(|of| (only(of.sources()), of.exited_count.max(1))))
    }

    pub(super) fn pids_of(&self, processes: &[ProcessId]) -> Vec<u32> {
        processes.iter().map(|id| self.processes.get(*id).pid).collect()
    }

    pub(super) fn programs(&self, processes: &[ProcessId]) -> Vec<Program> {
        let program = |id: &ProcessId| {
            let of = self.processes.get(*id);
            Program {
                exe: of.exe.clone(),
                comm: of.comm.clone(),
                cgroup: of.origin.cgroup.clone(),
                container: of.origin.container.clone(),
                service: of.origin.service.clone(),
            }
        };
        processes.iter().map(program).collect()
    }

    /// Names of the processes, by pid. Folded processes have no pid, and no name.
    pub(super) fn process_names(&self, processes: &[ProcessId]) -> BTreeMap<u32, ProcessName> {
        let records = processes.iter().map(|id| self.processes.get(*id));
        let name = |of: &ProcessRecord| ProcessName { comm: of.comm.clone(), exe: of.exe.clone() };
        records.filter(|of| of.pid != 0).map(|of| (of.pid, name(of))).collect()
    }

    pub(super) fn duration_ns(&self, chosen: &[ProcessId]) -> u64 {
        let now = SystemTime::now();
        chosen
            .iter()
            .map(|id| self.processes.get(*id))
            .filter_map(|record| record.exited.unwrap_or(now).duration_since(record.attached).ok())
            .map(|duration| duration.as_nanos() as u64)
            .max()
            .unwrap_or(0)
    }

    /// The largest interval of the chosen processes.
    pub(super) fn interval_of(
        &self,
        chosen: &[ProcessId],
        of: impl Fn(&SamplingRecord) -> f64,
    ) -> f64 {
        chosen.iter().map(|id| of(&self.processes.get(*id).sampling)).fold(1.0, f64::max)
    }
}
