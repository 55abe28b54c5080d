//! Adds records from the ring to the store. This file does not access eBPF maps.

use super::captured_stack::{CapturedStack, ending};
use super::mapped::AllocatorTexts;
use super::python::WaitingPython;
use super::stack_cache::StackCache;
use crate::bpf::ring::Record;
use crate::inspect::process;
use crate::pipeline::collect::LastCollection;
use crate::pipeline::processes::process::{ProcessTable, ProfiledProcess};
use crate::pipeline::rates::pressure::Arrivals;
use crate::pipeline::source::SampleEvent;
use crate::store::stacks::StackFrame;
use crate::store::{
    Lifetimes, LiveSample, LiveSamples, Mapped, Outcomes, ProcessId, ProcessRecord, Processes,
    Rows, Sampling, SamplingRecord, StackId, Stacks, WindowSamples, Windows,
};
use crate::unwind::{Frame, History, Modules, UnwindEnd};
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::estimate::Sample;
use sampler_common::sampling::Design;
use sampler_common::share::UNKNOWN_USER;
use sampler_common::source::SampleSource;
use sampler_common::wire::{AllocationRecord, FreeRecord, Role, Space};
use std::sync::Arc;
use tokio::sync::broadcast;

/// Probability that a sample is kept through `halvings` halvings.
pub(in crate::pipeline) fn halved(halvings: u32) -> f64 {
    (-f64::from(halvings)).exp2()
}

/// Something that the event loop has to do after it has read the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum Event {
    /// The process in this slot replaced its program image.
    Exec { slot: u32, generation: u32 },
    /// The live set is nearly full.
    LiveHigh,
    /// A new process has taken the slot `slot`.
    Appeared { slot: u32 },
    /// The first thread of the process in this slot is exiting.
    Leaving { slot: u32 },
    /// A process that has no slot yet replaced its program image.
    ExpectedExec { pid: u32 },
    /// The program image in this slot has sent the first sample that it took by itself.
    SamplesItself { slot: u32 },
}

/// The store, with the state that is needed to add records.
pub(in crate::pipeline) struct Ingest {
    pub(in crate::pipeline) table: ProcessTable,
    pub(in crate::pipeline) processes: Processes,
    pub(in crate::pipeline) stacks: Stacks,
    pub(in crate::pipeline) rows: Rows,
    pub(in crate::pipeline) windows: Windows,
    pub(in crate::pipeline) live: LiveSamples,
    pub(in crate::pipeline) lifetimes: Lifetimes,
    pub(in crate::pipeline) outcomes: Outcomes,
    pub(in crate::pipeline) modules: Modules,
    /// Names of the probed functions, by the frame of the function.
    pub(in crate::pipeline) probe_names: FxHashMap<Frame, String>,
    pub(in crate::pipeline) events: Vec<Event>,
    pub(in crate::pipeline) samples: broadcast::Sender<Arc<SampleEvent>>,
    /// How newly appeared processes are sampled.
    pub(in crate::pipeline) sampling: Sampling,
    pub(in crate::pipeline) frames: Vec<Frame>,
    /// Stacks that the kernel side does not copy again.
    pub(in crate::pipeline) stack_cache: StackCache,
    /// The images of processes, from the kernel's mapping events.
    pub(in crate::pipeline) history: History,
    /// The record of `sampling` that processes share.
    common: Arc<SamplingRecord>,
    /// What programs map themselves, and not through an allocator.
    pub(in crate::pipeline) mapped: Mapped,
    /// Python frames whose sample has not arrived yet.
    pub(in crate::pipeline) python: WaitingPython,
    pub(in crate::pipeline) allocator_texts: AllocatorTexts,
    /// Number of records read, of samples and of their ends.
    pub(in crate::pipeline) records: u64,
    pub(in crate::pipeline) arrivals: Arrivals,
    /// Samples of windows, and the groups of windows.
    pub(in crate::pipeline) window_samples: WindowSamples,
    pub(in crate::pipeline) last_collection: LastCollection,
    /// Whether our probes sample no process, so that only processes that sample themselves are
    /// seen.
    is_self_sampled: bool,
}

impl Ingest {
    pub(in crate::pipeline) fn new(
        samples: broadcast::Sender<Arc<SampleEvent>>,
        sampling: Sampling,
        now_ns: u64,
        is_self_sampled: bool,
    ) -> Ingest {
        Ingest {
            table: ProcessTable::default(),
            processes: Processes::default(),
            stacks: Stacks::default(),
            rows: Rows::default(),
            windows: Windows::new(now_ns),
            live: LiveSamples::default(),
            lifetimes: Lifetimes::default(),
            outcomes: Outcomes::default(),
            modules: Modules::default(),
            probe_names: FxHashMap::default(),
            events: Vec::new(),
            samples,
            sampling,
            frames: Vec::new(),
            stack_cache: StackCache::default(),
            history: History::default(),
            common: common_record(sampling, is_self_sampled),
            mapped: Mapped::new(now_ns),
            python: WaitingPython::default(),
            allocator_texts: AllocatorTexts::default(),
            records: 0,
            arrivals: Arrivals::default(),
            window_samples: WindowSamples::default(),
            last_collection: LastCollection::default(),
            is_self_sampled,
        }
    }

    /// Adds one record to the store.
    pub(in crate::pipeline) fn record(&mut self, record: Record<'_>) {
        match record {
            Record::Snapshot(header, stack) => {
                self.allocation(&header, CapturedStack::Snapshot(stack))
            }
            Record::Frames(header, addresses) => {
                self.allocation(&header, CapturedStack::Frames(addresses))
            }
            Record::Known(header, id) => self.allocation(&header, CapturedStack::Known(id)),
            Record::Free(free) => self.free(&free),
            Record::Exec(event) => self
                .events
                .push(Event::Exec { slot: event.space.slot, generation: event.space.generation }),
            Record::LiveHigh(_) => self.events.push(Event::LiveHigh),
            Record::Appeared(event) => {
                let comm = event.comm.split(|byte| *byte == 0).next().unwrap_or_default();
                let comm = String::from_utf8_lossy(comm).into_owned();
                self.add_new_process(event.space, event.pid, comm);
            }
            Record::Leaving(event) => {
                self.events.push(Event::Leaving { slot: event.space.slot });
            }
            Record::ExpectedExec(event) => {
                self.events.push(Event::ExpectedExec { pid: event.pid });
            }
            // The record only wakes the event loop, which then checks the gates of all windows.
            Record::Gate(_) => {}
            Record::Mapping(record, stack) => self.mapping(&record, stack),
            Record::Python(stack) => self.python.push(stack),
            Record::Malformed => self.outcomes.add(Outcome::Malformed, 1),
        }
    }

    /// Adds a new process that has taken a slot, with the facts in its first record. The event loop
    /// inspects the process later.
    pub(super) fn add_new_process(&mut self, space: Space, pid: u32, comm: String) {
        if self.table.contains(space.slot) {
            return;
        }
        let mut record = ProcessRecord::new(pid, self.default_sampling());
        record.comm = comm;
        // The first samples have their user, too.
        record.user = process::user(pid).unwrap_or(UNKNOWN_USER);
        let process = self.processes.insert(record);
        self.table.insert(space.slot, ProfiledProcess::new(process, pid, space.generation));
        self.events.push(Event::Appeared { slot: space.slot });
    }

    /// How processes are sampled by default. All processes share one record while the default stays
    /// the same.
    pub(in crate::pipeline) fn default_sampling(&mut self) -> Arc<SamplingRecord> {
        if self.common.requested != self.sampling {
            self.common = common_record(self.sampling, self.is_self_sampled);
        }
        Arc::clone(&self.common)
    }

    /// Marks a process as exited, after its last record. Above the bound of exited processes,
    /// records of one program are added up.
    pub(in crate::pipeline) fn exit(&mut self, process: ProcessId) {
        self.last_collection.has_ended = true;
        self.processes.exit(process);
        let moves = self.processes.fold();
        if !moves.is_empty() {
            self.move_all(&moves);
        }
    }

    /// Drops the samples of a window that has not ended, and counts them as `WindowCut`.
    pub(in crate::pipeline) fn cut_window(&mut self, process: ProcessId) {
        let cut = self.window_samples.take_open(process).len();
        self.outcomes.add(Outcome::WindowCut, cut as u64);
    }

    fn free(&mut self, record: &FreeRecord) {
        self.records += 1;
        if let Some(profiled) = self.table.get(record.space.slot) {
            self.processes.get_mut(profiled.id).spending.records += 1;
        }
        match self.live.remove(record.sample) {
            Some(live) => {
                self.windows.add_departed(&live, record.time_ns);
                let user = self.processes.get(live.process).user;
                if !self.lifetimes.freed(&live, user, record.time_ns) {
                    self.outcomes.add(Outcome::LifetimesFull, 1);
                }
            }
            None => self.outcomes.add(Outcome::FreedUnknown, 1),
        }
    }

    fn allocation(&mut self, record: &AllocationRecord, captured: CapturedStack<'_>) {
        let Some(mut profiled) = self.source(record.space) else {
            self.outcomes.add(Outcome::UnknownProcess, 1);
            return;
        };
        if record.hits == 0 || record.sample == 0 {
            self.outcomes.add(Outcome::Malformed, 1);
            self.table.put_back(record.space.slot, profiled);
            return;
        }
        self.records += 1;
        let stack_bytes = match captured {
            CapturedStack::Known(id) => {
                self.stack_cache.named(id).map_or(0, |known| known.cost_bytes)
            }
            CapturedStack::Snapshot(_) | CapturedStack::Frames(_) => record.stack_bytes,
        };
        self.processes.get_mut(profiled.id).spending.read_sample(stack_bytes);
        let design = Design::from_word(record.design);
        if design.is_external() {
            if profiled.samples_itself() {
                self.events.push(Event::SamplesItself { slot: record.space.slot });
            }
            let sampling = &mut self.processes.get_mut(profiled.id).sampling;
            Arc::make_mut(sampling).took_itself(record.size, design.weighted_bytes());
        } else {
            let probed_by = self.probed_by();
            self.processes.get_mut(profiled.id).sources.insert(probed_by);
        }
        let sampling = &self.processes.get(profiled.id).sampling;
        let limited_ns = profiled.library.as_ref().map(|library| library.limited_ns);
        self.arrivals.note(record, sampling, limited_ns);
        let known = match captured {
            CapturedStack::Known(id) => self.cached_stack(&mut profiled, record, id),
            CapturedStack::Snapshot(_) | CapturedStack::Frames(_) => None,
        };
        let end = match known {
            Some(_) => UnwindEnd::Complete,
            None => self.walk(&mut profiled, record, captured),
        };
        if known.is_none() {
            self.merge_python(&mut profiled, record, end);
        }
        // A USDT probe lies inside the leaf function, so the leaf is no probed function.
        if record.role != Role::OtelAlloc as u32
            && let Some(function) = self.frames.first()
        {
            self.name_probe(&profiled, *function);
        }
        let (outcome, note) = ending(end);
        self.outcomes.add(outcome, 1);
        let sample = Sample {
            hits: record.hits,
            tail: record.size.checked_sub(record.offset),
            ..Sample::new(record.size, design)
        };
        self.publish(&profiled, record, &sample, outcome.name());
        let process = profiled.id;
        let current = record.space.generation == profiled.generation;
        let stack = known.unwrap_or_else(|| {
            let code = self.frames.iter().map(|frame| StackFrame::Code(*frame));
            let holder = self.processes.holder(process);
            let stack = self.stacks.intern(holder, code.chain(note.map(StackFrame::Note)));
            stack.unwrap_or(StackId::TABLE_FULL)
        });
        if current && known.is_none() && !profiled.has_python() {
            self.add_to_stack_cache(&profiled, record, captured, end, stack);
        }
        self.table.put_back(record.space.slot, profiled);
        if self.window_samples.is_on {
            if !self.window_samples.push(process, stack, sample) {
                self.outcomes.add(Outcome::WindowCut, 1);
            }
            return;
        }
        if !self.rows.add(self.processes.holder(process), stack, &sample)
            || stack == StackId::TABLE_FULL
        {
            self.outcomes.add(Outcome::StackTableFull, 1);
        }
        if !self.windows.add(process, stack, &sample, record.time_ns) {
            self.outcomes.add(Outcome::WindowsFull, 1);
        }
        // A block of a replaced image is not held.
        if record.live != 0 && current {
            let (space, time_ns) = (record.space, record.time_ns);
            if record.live > 1 {
                self.processes.get_mut(process).epochs().note_declined(record.live - 1);
            }
            let sample = Sample { kept: halved(record.live - 1), ..sample };
            self.live.insert(record.sample, LiveSample { process, space, stack, sample, time_ns });
        }
    }

    /// The source of the samples that our own probes on allocators take.
    pub(in crate::pipeline) fn probed_by(&self) -> SampleSource {
        if self.window_samples.is_on { SampleSource::Windows } else { SampleSource::Uprobes }
    }

    /// The process of an address space. It is taken out of the table while its image is used.
    pub(in crate::pipeline) fn source(&mut self, space: Space) -> Option<Box<ProfiledProcess>> {
        let profiled = self.table.get(space.slot)?;
        if space.generation < profiled.first_generation {
            return None;
        }
        let mut profiled = self.table.take(space.slot)?;
        if space.generation > profiled.generation {
            // The event of this `execve` arrives later, or was lost.
            self.events.push(Event::Exec { slot: space.slot, generation: space.generation });
            profiled.generation = space.generation;
            profiled.image = None;
        }
        Some(profiled)
    }

    /// Remembers the usual name of a probed function. A library has several names for one address.
    pub(super) fn name_probe(&mut self, profiled: &ProfiledProcess, frame: Frame) {
        if self.probe_names.contains_key(&frame) {
            return;
        }
        let path = &self.modules.get(frame.module).path;
        let mut allocators = profiled.allocators.iter();
        if let Some(name) = allocators.find_map(|of| of.probed_at(path, frame.offset)) {
            self.probe_names.insert(frame, name.clone());
        }
    }

    fn publish(
        &self,
        profiled: &ProfiledProcess,
        record: &AllocationRecord,
        sample: &Sample,
        unwind: &'static str,
    ) {
        if self.samples.receiver_count() == 0 {
            return;
        }
        let frames = self
            .frames
            .iter()
            .map(|frame| (Arc::clone(self.modules.get(frame.module)), frame.offset))
            .collect();
        let process = self.processes.get(profiled.id);
        // It is no loss if there is no receiver any more.
        let _ = self.samples.send(Arc::new(SampleEvent {
            pid: profiled.pid,
            tid: record.tid,
            time_ns: record.time_ns,
            size: record.size,
            inclusion: sample.inclusion().unwrap_or(0.0) * self.window_samples.kappa(profiled.id),
            offset: record.offset,
            frames,
            unwind,
            comm: process.comm.clone(),
            exe: process.exe.clone(),
            origin: process.origin.clone(),
        }));
    }
}
/// How newly appeared processes are sampled. In a self-sampled run, our probes do not sample them.
fn common_record(sampling: Sampling, is_self_sampled: bool) -> Arc<SamplingRecord> {
    let mut record = SamplingRecord::new(sampling);
    if is_self_sampled {
        record.begin_self_sampled();
    }
    Arc::new(record)
}
