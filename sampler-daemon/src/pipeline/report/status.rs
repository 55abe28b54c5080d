//! The daemon's status report.

use super::super::library::injections::Injections;
use super::notes::unexplained::{self, Compared};
use crate::bpf::{ProbeEngine, Settings};
use crate::inspect::allocator::Function;
use crate::inspect::process::memory;
use crate::links;
use crate::pipeline::clock;
use crate::pipeline::command::SamplingReport;
use crate::pipeline::cost::{Prices, UnreadCost};
use crate::pipeline::latency::Histogram;
use crate::pipeline::processes::coverage::MAX_BLIND_PROCESSES;
use crate::pipeline::processes::exclude::Exclusion;
use crate::pipeline::processes::process_events::EventCounts;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::records::reading::RingReading;
use crate::pipeline::worker::Worker;
use crate::store::{MAX_GROUPS, ProcessId, lifetimes, process, rows, stacks};
use crate::unwind::{Counts, MAX_NAME_BYTES};
use sampler_common::cost::{Forecast, Measured, Placed, Range, Report};
use sampler_common::counters::{KERNEL_OUTCOMES, Outcome};
use sampler_common::counting::Count;
use sampler_common::estimate::Confidence;
use sampler_common::limits::{MAX_PENDING, MAX_TARGETS};
use sampler_common::note::Processes;
use sampler_common::pressure::Limits;
use sampler_common::units;
use sampler_common::wire::Role;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A probe, with the processes that have it.
#[derive(Clone, Debug)]
pub struct ProbeReport {
    /// The file.
    pub path: String,
    /// Its build id.
    pub build_id: String,
    /// The function.
    pub function: Function,
    /// Processes that have the probe.
    pub pids: Vec<u32>,
    /// Hits of all functions with this role in these processes: they share one count. `None` if the
    /// count cannot be read.
    pub hits: Option<Count>,
    /// Cost of one hit; `None` if unknown.
    pub per_hit: Option<Measured>,
    /// CPU time of these hits; `None` if unknown.
    pub spent: Option<Range>,
}

/// The daemon's state.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// Settings that do not change while the daemon runs.
    pub settings: Settings,
    /// Time since the start.
    pub uptime: Duration,
    /// Entries of the live set.
    pub live_samples: u64,
    /// Every outcome with its count.
    pub outcomes: Vec<(Outcome, u64)>,
    /// How every running process is sampled.
    pub intervals: Vec<SamplingReport>,
    /// Probes.
    pub probes: Vec<ProbeReport>,
    /// What samplerd cannot see, one sentence each.
    pub blind_spots: Vec<String>,
    /// What is not available: a kind of profile or `history`, and why, in one line.
    pub unsupported: Vec<(&'static str, String)>,
    /// Tables: name, used, bound.
    pub tables: Vec<(&'static str, u64, u64)>,
    /// Counts of process events.
    pub process_events: Option<EventCounts>,
    /// What samplerd cannot see in running processes, by reason.
    pub coverage: Vec<Processes>,
    /// Calls of excluded processes on shared links.
    pub excluded_calls: u64,
    /// Exclusions, with the number of running processes that each excludes.
    pub excluded: Vec<(Exclusion, u64)>,
    /// Calls of processes that should be profiled but found no slot.
    pub unseen_calls: u64,
    /// Prices of probes on this machine.
    pub prices: Prices,
    /// Forecast cost of uprobes, by pid.
    pub forecasts: Vec<(u32, Forecast)>,
    /// Cost of profiling all processes together.
    pub cost: Report,
    /// What `cost` is made from: CPU times are not read yet.
    pub(super) unread: UnreadCost,
    /// Processes whose memory has yet to be compared with what they hold.
    pub(super) compared: Vec<Compared>,
    /// CPU time of the daemon and of its guardian, nanoseconds.
    pub processor_ns: u64,
    /// The part of `processor_ns` that was used before the daemon was ready, without measuring
    /// prices.
    pub starting_ns: u64,
    /// Limits of samples per second.
    pub limits: Limits,
    /// Times that the worker took to answer, by request.
    pub answers: Vec<(&'static str, Histogram)>,
    /// How the ring was read.
    pub reading: RingReading,
    /// Resident memory of the daemon; `None` if it could not be read.
    pub rss_bytes: Option<u64>,
}

impl StatusReport {
    /// Reads the CPU time of the processes and the daemon's memory; not on the worker's thread.
    pub(in crate::pipeline) fn read_processor(mut self) -> StatusReport {
        self.rss_bytes = memory::own_rss_bytes();
        self.cost = std::mem::take(&mut self.unread).read();
        let unexplained = unexplained::note(&std::mem::take(&mut self.compared));
        self.blind_spots.extend(unexplained.map(|note| note.to_string()));
        self
    }
}

impl Worker {
    pub(super) fn status(&self) -> StatusReport {
        let kernel = self.kernel_totals();
        let mut outcomes = self.ingest.outcomes.clone();
        for outcome in &Outcome::ALL[..KERNEL_OUTCOMES] {
            outcomes.add(*outcome, kernel.outcome(*outcome));
        }
        outcomes.add(Outcome::StreamLagged, self.shared.lagged.load(Relaxed));
        let (stack_count, frame_count) = self.ingest.stacks.len();
        let (windows, window_bound) = self.ingest.windows.len();
        let (departed, departed_bound) = self.ingest.windows.departed();
        let (gone, gone_bound) = self.ingest.live.peaks().len();
        let (exited, groups, _) = self.ingest.processes.usage();
        let (mapped, mapped_bound) = self.ingest.mapped.len();
        outcomes.add(Outcome::MappingUnheld, self.ingest.mapped.unheld);
        outcomes.add(Outcome::MappingUnpaired, self.ingest.mapped.unpaired);
        outcomes.add(Outcome::StackTableFull, self.ingest.mapped.rowless);
        let (known, known_bound) = self.ingest.stack_cache.len();
        let (modules, module_bound) = self.ingest.modules.usage();
        let (mappings, mapping_bound) = self.ingest.history.usage();
        let all: Vec<ProcessId> = self.ingest.processes.iter().map(|(id, _)| id).collect();
        StatusReport {
            settings: self.config.settings,
            uptime: self.started.elapsed(),
            live_samples: self.kernel.live.len(),
            outcomes: outcomes.iter().collect(),
            intervals: self.ingest.samplings(),
            probes: self.probes(),
            blind_spots: self.blind_spots(),
            unsupported: self.config.capabilities().unsupported(),
            tables: vec![
                ("live", self.kernel.live.len(), u64::from(self.kernel.live.bound())),
                ("stacks", stack_count as u64, stacks::MAX_STACKS as u64),
                ("frames", frame_count as u64, stacks::MAX_FRAME_TABLE as u64),
                ("known stacks", known as u64, known_bound as u64),
                ("rows", self.ingest.rows.len() as u64, rows::MAX_ROWS as u64),
                ("windows", windows as u64, window_bound as u64),
                ("departed", departed as u64, departed_bound as u64),
                ("peak", gone as u64, gone_bound as u64),
                ("lifetimes", self.ingest.lifetimes.len() as u64, lifetimes::MAX_CELLS as u64),
                ("mapped", mapped as u64, mapped_bound as u64),
                ("modules", modules as u64, module_bound as u64),
                ("mappings", mappings as u64, mapping_bound as u64),
                ("jit_names", self.ingest.modules.name_bytes() as u64, MAX_NAME_BYTES as u64),
                ("probed files", self.links.shared.file_count() as u64, links::MAX_FILES as u64),
                ("looked_at", self.coverage.len() as u64, MAX_BLIND_PROCESSES as u64),
                (
                    "slots",
                    self.ingest.table.all_attached().count() as u64,
                    u64::from(self.config.settings.slots),
                ),
                ("targets", self.kernel.targets.all().len() as u64, u64::from(MAX_TARGETS)),
                ("pending", self.kernel.pending.len(), u64::from(MAX_PENDING)),
                ("exited", exited as u64, process::MAX_EXITED as u64),
                ("programs", groups as u64, MAX_GROUPS as u64),
                (
                    "ring",
                    self.reading.ring_waiting_bytes,
                    u64::from(self.config.settings.ring_bytes),
                ),
            ],
            process_events: self.process_events.counts(&self.ingest.history),
            coverage: self.blind_processes(),
            excluded_calls: self.kernel.state().excluded_calls(),
            unseen_calls: self.kernel.state().unseen_calls(),
            limits: self.config.limits,
            excluded: self.excluded.report(),
            prices: self.prices.clone(),
            forecasts: self.forecasts(),
            cost: Report::default(),
            unread: self.costs(&all, Confidence::DEFAULT),
            compared: self.compared(&all),
            processor_ns: clock::processor_ns() + self.kernel.attacher().spent_ns(),
            starting_ns: self.starting_ns,
            answers: self.shared.answers.read(),
            reading: self.reading.clone(),
            rss_bytes: None,
        }
    }

    fn probes(&self) -> Vec<ProbeReport> {
        // Each probe with the slots of its processes.
        let mut probes: Vec<(ProbeReport, Vec<u32>)> = Vec::new();
        let own = self.ingest.table.iter().flat_map(|(slot, profiled)| {
            profiled.allocators.iter().map(move |allocator| (Some((slot, profiled.pid)), allocator))
        });
        // Shared links exist without any process.
        for (of, allocator) in
            own.chain(self.links.shared.allocators().map(|shared| (None, shared)))
        {
            for function in &allocator.functions {
                let frees = matches!(function.role, Role::Free | Role::OtelFree);
                if frees && !self.config.settings.track_live
                    || function.role.is_mapping() && !self.config.settings.mappings
                {
                    continue;
                }
                let same = probes.iter_mut().find(|(probe, _)| {
                    probe.path == allocator.path
                        && probe.build_id == allocator.build_id
                        && probe.function.offset == function.offset
                });
                if let Some((probe, slots)) = same {
                    probe.pids.extend(of.map(|(_, pid)| pid));
                    slots.extend(of.map(|(slot, _)| slot));
                    continue;
                }
                let probe = ProbeReport {
                    path: allocator.path.clone(),
                    build_id: allocator.build_id.clone(),
                    function: function.clone(),
                    pids: of.iter().map(|(_, pid)| *pid).collect(),
                    hits: None,
                    per_hit: self.price_of(function),
                    spent: None,
                };
                probes.push((probe, of.iter().map(|(slot, _)| *slot).collect()));
            }
        }
        let with_hits = probes.into_iter().map(|(probe, slots)| {
            let Function { role, placement, .. } = &probe.function;
            let placed = Placed::one(placement.emulated);
            let hits = self.hits(&slots, *role, placed);
            let spent = self.spent_on_hits(&slots, *role, placed);
            ProbeReport { hits, spent, ..probe }
        });
        with_hits.collect()
    }

    fn blind_spots(&self) -> Vec<String> {
        let mut blind_spots: Vec<String> =
            self.blind_processes().iter().map(Processes::to_string).collect();
        blind_spots.extend(self.slow_probes());
        blind_spots.extend(self.tree_limits());
        blind_spots.extend(self.injections.as_ref().and_then(Injections::limits));
        blind_spots.extend(self.patched_limits());
        blind_spots.extend(self.ingest.module_limits());
        let refused = self.ingest.outcomes.get(Outcome::StackTableFull);
        blind_spots.extend((refused > 0).then(|| {
            format!(
                "the stacks of {} samples: each user and each process has its share of the stack table (give a larger interval)",
                units::grouped(refused)
            )
        }));
        blind_spots.push("blocks allocated before the attach are unknown, not zero".into());
        if self.config.settings.usdt && !self.config.settings.uses_usdt() {
            blind_spots.push(
                "what processes sample by themselves: perf probes cannot raise the semaphores of otel_memory"
                    .into(),
            );
        }
        if self.engine() != ProbeEngine::Perf {
            blind_spots.push(
                "what a vfork child does to its parent's heap before execve (--probe-engine perf sees it)"
                    .into(),
            );
        }
        if self.config.is_open() && !self.process_events.is_open() {
            blind_spots.push(
                "the kernel does not tell of new mappings (see the log): programs shorter than a moment have no names"
                    .into(),
            );
        }
        blind_spots.push(match self.config.settings.mappings {
            true => "memory mapped past the C library's mmap, mremap and sbrk (kind mapped)".into(),
            false => "memory that programs map themselves (--no-mappings): no kind mapped".into(),
        });
        if !self.config.settings.track_live {
            let why = if self.config.windows.is_some() { "--windows" } else { "--no-live" };
            blind_spots
                .push(format!("frees are not probed ({why}): nothing is known of live memory"));
        }
        blind_spots
    }
}

impl Ingest {
    /// How every running process is sampled, by pid.
    pub(in crate::pipeline) fn samplings(&self) -> Vec<SamplingReport> {
        let mut samplings: Vec<SamplingReport> = self
            .table
            .values()
            .map(|profiled| {
                let record = self.processes.get(profiled.id);
                SamplingReport::new(record)
            })
            .collect();
        samplings.sort_unstable_by_key(|of| of.pid);
        samplings
    }

    /// Modules without names or unwind information because a bound was reached.
    fn module_limits(&self) -> impl Iterator<Item = String> {
        let Counts { table_full, unopened, unheld, names_refused, no_room_for_sections } =
            self.modules.counts();
        let lines = [
            (
                table_full,
                "times a file found no room, because its process or its user had its share of those that are known: code in it has no name",
            ),
            (
                unopened,
                "times a mapped file could not be opened: code in it has no name, and stacks end there",
            ),
            (
                unheld,
                "files are not held open, of so many of one process: code in them has no name (raise the limit of open files, `ulimit -n`)",
            ),
            (
                names_refused,
                "names of generated code found no room, of which each user and each process has its share",
            ),
            (
                no_room_for_sections,
                "times there was no room for a file's unwind information, of which each user and each process has its share: stacks end there",
            ),
        ];
        let nonzero = lines.into_iter().filter(|(count, _)| *count > 0);
        nonzero.map(|(count, what)| format!("{} {what}", units::grouped(count)))
    }
}
