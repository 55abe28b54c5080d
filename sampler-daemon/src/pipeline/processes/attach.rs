//! The attach: a process gets its slot and its probes.

use super::facts;
use super::process::ProfiledProcess;
use super::schedule::InspectionTimer;
use crate::bpf::ProbeEngine;
use crate::bpf::maps::totals::SlotTotals;
use crate::inspect::code::patched::Patched;
use crate::inspect::discovery::Discovery;
use crate::inspect::hazard::{Hazard, has_program};
use crate::inspect::mappings;
use crate::inspect::mappings::unchanged::MappingsFingerprint;
use crate::inspect::process::Process;
use crate::pipeline::rates::sampling::Learning;
use crate::pipeline::worker::Worker;
use crate::store::{ProcessRecord, SamplingRecord};
use sampler_common::note::BlindSpot;
use std::sync::Arc;

/// Reported in `status`.
const LOST_MAIN_THREAD: &str =
    "the main thread has ended: perf probes follow it, what other threads do since is not seen";

/// What the worker knows of an attached process.
pub(in crate::pipeline) struct Attached {
    /// `None`: the process was gone before it could be opened.
    pub(in crate::pipeline) process: Option<Process>,
    /// The slot's leader changes when the links were made; see
    /// [`crate::bpf::maps::shared::ProcessSlots::leader_changes`].
    pub(super) leader_changes: u32,
    pub(in crate::pipeline) timer: InspectionTimer,
    /// Fingerprint of the mappings at the last inspection.
    pub(super) fingerprint: MappingsFingerprint,
    /// Whether the process runs a new program image, of which it is not known yet what stays
    /// mapped.
    pub(in crate::pipeline) has_new_image: bool,
    /// Whether a large file was still being searched at the last inspection.
    pub(super) is_unfinished: bool,
    /// Why the image must not be probed.
    pub(in crate::pipeline) hazard: Option<Hazard>,
    /// Patched functions of the image, which are left unprobed.
    pub(super) patched: Vec<Patched>,
    pub(in crate::pipeline) learning: Box<Learning>,
}

/// Why a process cannot be attached, one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// All slots are in use.
    #[error("pid {0}: already profiling {1} processes, the most at a time (raise --max-processes)")]
    TooMany(u32, u32),
    /// The process is attached already.
    #[error("pid {0}: is profiled already (give each --pid once)")]
    Twice(u32),
    /// The process has nothing to probe.
    #[error(
        "pid {0}: no malloc that samplerd knows in it ({1}; an allocator of its own: --allocator-spec FILE; if it only starts others: --follow)"
    )]
    NoAllocator(u32, String),
    /// Return probes could crash the process.
    #[error("pid {0}: {1}")]
    Harmful(u32, Hazard),
    /// The process is gone.
    #[error("pid {0}: exited while it was being attached")]
    Exited(u32),
    /// Anything else.
    #[error("pid {0}: {1}")]
    Other(u32, String),
}

impl Worker {
    /// Attaches to a process.
    pub(in crate::pipeline) fn attach(&mut self, process: Process) -> Result<(), AttachError> {
        let pid = process.pid;
        if self.ingest.table.attached_slot(pid).is_some() {
            return Err(AttachError::Twice(pid));
        }
        let slot = (0..self.config.settings.slots)
            .find(|slot| !self.ingest.table.is_attached(*slot))
            .ok_or(AttachError::TooMany(pid, self.config.settings.slots))?;
        if let Some(hazard) = self.hazard(pid) {
            return Err(AttachError::Harmful(pid, hazard));
        }
        // The kernel frees the memory of an exiting process before it signals the end.
        let is_there = || process.is_running() && has_program(pid);
        let exited = |error| if is_there() { error } else { AttachError::Exited(pid) };
        let mut discovery = self.discover(pid).map_err(exited)?;
        if discovery.is_unfinished {
            self.discoverer.wait_for_large_files();
            discovery = self.discover(pid).map_err(exited)?;
        }
        // Children of the process may have an allocator.
        let has_none = discovery.allocators.is_empty() && discovery.samplers.is_empty();
        if has_none && !discovery.is_unfinished {
            let why = match discovery.blind_spots.is_empty() {
                true => "none is mapped".to_owned(),
                false => {
                    let lines: Vec<String> =
                        discovery.blind_spots.iter().map(BlindSpot::to_string).collect();
                    lines.join("; ")
                }
            };
            if !self.config.is_tree() {
                return Err(AttachError::NoAllocator(pid, why));
            }
            if !self.config.samplers_only {
                tracing::warn!(pid, "nothing of it is probed, but what it starts will be: {why}");
            }
        }
        let mut sampling = self.ingest.default_sampling();
        if discovery.is_sampled {
            Arc::make_mut(&mut sampling).begin_self_sampled();
        }
        let mut record = ProcessRecord::new(pid, sampling);
        facts::read(&mut record, &process);
        let id = self.ingest.processes.insert(record);
        let other = |error: anyhow::Error| AttachError::Other(pid, format!("{error:#}"));
        let generation = self.make_ready(slot).map_err(other)?;
        self.kernel.targets.enter(pid, slot).map_err(other)?;
        let mut profiled = ProfiledProcess::new(id, pid, generation);
        profiled.attached = Some(self.new_attached(slot, Some(process)));
        self.ingest.table.insert(slot, profiled);
        if let Err(error) = self.probe(slot, discovery) {
            let gone = self.ingest.table.attached(slot).is_some_and(|a| !a.is_running());
            self.release(slot);
            return Err(if gone { AttachError::Exited(pid) } else { other(error) });
        }
        tracing::info!(pid, slot, engine = %self.engine(), "attached");
        Ok(())
    }

    /// Prepares a slot for a process: totals are 0, and sampling is the default. Returns the slot's
    /// generation.
    pub(in crate::pipeline) fn make_ready(&mut self, slot: u32) -> anyhow::Result<u32> {
        let generation = self.kernel.slots.renew(slot);
        self.kernel.slots.set_holds_nothing(slot, false);
        let sampling = SamplingRecord::new(self.config.sampling);
        self.kernel.slots.set_designs(slot, &sampling.designs);
        self.kernel.totals.reset(slot)?;
        self.kernel.hits.reset(slot);
        self.kernel.python.clear(slot);
        if let Some(gates) = &mut self.kernel.windows {
            gates.reset(slot);
        }
        Ok(generation)
    }

    pub(in crate::pipeline) fn new_attached(
        &self,
        slot: u32,
        process: Option<Process>,
    ) -> Attached {
        Attached {
            process,
            leader_changes: self.kernel.slots.leader_changes(slot),
            timer: InspectionTimer::sweep(),
            fingerprint: MappingsFingerprint::default(),
            has_new_image: false,
            is_unfinished: false,
            hazard: None,
            patched: Vec::new(),
            learning: Box::new(Learning::new(SlotTotals::default())),
        }
    }

    pub(super) fn discover(&mut self, pid: u32) -> Result<Discovery, AttachError> {
        mappings::read_some(pid)
            .and_then(|mappings| self.discover_in_mappings(pid, &mappings))
            .map_err(|error| AttachError::Other(pid, format!("read /proc/{pid}/maps: {error}")))
    }

    /// Attaches to those discovered allocators that are not probed yet. An error is also recorded
    /// as a blind spot of the process, until the next call succeeds.
    pub(in crate::pipeline) fn probe(
        &mut self,
        slot: u32,
        discovery: Discovery,
    ) -> anyhow::Result<()> {
        let probed = self.probe_discovered(slot, discovery);
        if let Err(error) = &probed
            && let Some(profiled) = self.ingest.table.get(slot)
        {
            let record = self.ingest.processes.get_mut(profiled.id);
            record.blind_spots.push(not_probed(error));
            record.has_unseen_allocations = true;
        }
        probed
    }

    fn probe_discovered(&mut self, slot: u32, mut discovery: Discovery) -> anyhow::Result<()> {
        // The image is opened now: at the first sample, the process may be gone or run another
        // program.
        self.ingest.open_image(slot);
        let patched = std::mem::take(&mut discovery.patched);
        self.probe_samplers(slot, &mut discovery)?;
        let (is_own, probed_by) = (self.config.has_own_links(), self.ingest.probed_by());
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return Ok(()) };
        let Some(attached) = &mut profiled.attached else { return Ok(()) };
        let record = self.ingest.processes.get_mut(profiled.id);
        record.blind_spots = discovery.blind_spots;
        record.has_unseen_allocations |= discovery.has_unseen_allocations;
        patched.iter().for_each(|of| of.clone().add_to(&mut attached.patched));
        if let Some(of) = discovery.in_force {
            record.in_force = format!("{} ({})", of.name, of.path);
        }
        // The kernel's filter of perf events compares with the memory of the probed thread. A
        // thread that has ended has none, and the kernel removes the probes.
        if is_own && self.kernel.engine() == ProbeEngine::Perf && attached.has_lost_main_thread() {
            record.blind_spots.push(LOST_MAIN_THREAD.into());
            record.has_unseen_allocations = true;
        }
        let known = profiled.allocators.len();
        let was_unfinished =
            std::mem::replace(&mut attached.is_unfinished, discovery.is_unfinished);
        for allocator in discovery.allocators {
            let identity = allocator.identity;
            let is_known = profiled.allocators.iter().any(|known| known.identity == identity);
            // In an open window a new allocator is probed at once, else from the next window on.
            let is_later = self.config.windows.is_some() && !self.links.has_own(slot);
            // A known allocator has lost its links if they could not be replaced. Shared links are
            // not made twice.
            let is_probed =
                is_own && (self.config.windows.is_some() || self.links.has_own_in(slot, identity));
            if is_known && is_probed {
                continue;
            }
            match is_own {
                true if is_later => {}
                true => self.links.attach_own(&mut self.kernel, slot, profiled.pid, &allocator)?,
                false => self.links.attach_shared(&mut self.kernel, &allocator)?,
            }
            if is_own {
                tracing::info!(
                    pid = profiled.pid,
                    path = allocator.path,
                    "probing {}",
                    allocator.name
                );
            }
            record.sources.insert(probed_by);
            if is_known {
                continue;
            }
            record.allocators.push(allocator.title());
            profiled.allocators.push(allocator);
        }
        let any = !profiled.allocators.is_empty();
        if profiled.allocators.len() > known {
            // What it gave out while its file was being searched is not seen.
            record.has_unseen_allocations |= was_unfinished;
            // A new allocator may have been patched between the comparison and the attach.
            attached.timer.inspect_now();
        }
        // An open window needs the new addresses; the next window reads them anyway.
        if profiled.allocators.len() > known {
            self.set_probe_addresses(slot);
        }
        // A process without an allocator needs no windows.
        if let Some(budget) = self.config.windows.filter(|_| any)
            && self.ingest.table.cycle(slot).is_none()
        {
            self.begin_windows(slot, budget);
        }
        self.exclude_for_all(&patched);
        self.report_patched(slot);
        self.find_python_now(slot);
        Ok(())
    }
}

/// The blind spots that an error of an attach leaves.
pub(super) fn not_probed(error: &anyhow::Error) -> BlindSpot {
    format!("not probed: {error:#}").into()
}

impl Attached {
    pub(in crate::pipeline) fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_running)
    }

    /// Makes the next inspection, which is soon, a complete one.
    pub(in crate::pipeline) fn inspect_all_again(&mut self) {
        self.fingerprint.forget();
        self.timer.inspect_now();
    }

    fn has_lost_main_thread(&self) -> bool {
        self.process.as_ref().is_some_and(Process::has_lost_main_thread)
    }
}
