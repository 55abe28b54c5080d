//! Processes come and go: attach, follow to a new program image or a new allocator, detach.

use super::ingest::Source;
use super::worker::Worker;
use crate::bpf::{Link, Points};
use crate::store::ProcessRecord;
use crate::target::allocator::{Allocator, Discovery};
use crate::target::hazard::{self, Hazard};
use crate::target::process::Process;
use sampler_common::counters::Outcome;
use sampler_common::limits::{CLASSES, MAX_PROCESSES};
use sampler_common::profile::Exact;
use sampler_common::sampling::Rate;
use sampler_common::wire::{Cookie, Role, Space};
use std::time::{Duration, Instant, SystemTime};

/// How often mappings are looked at for allocators that came by `dlopen`.
const SWEEP: Duration = Duration::from_secs(1);
/// After `execve` the new image's libraries appear within moments: look soon, then ever more rarely.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// A process in a kernel slot.
pub(super) struct Attached {
    pub(super) process: Process,
    pub(super) links: Vec<Link>,
    /// Of the slot when the links were made; see [`crate::bpf::shared::ProcessSlots::leader_changes`].
    leader_changes: u32,
    next_look: Instant,
    look_period: Duration,
    /// Its image must not be probed.
    hazard: Option<Hazard>,
}

/// Why a process cannot be attached, one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// All slots are in use.
    #[error("pid {0}: already profiling {MAX_PROCESSES} processes, the most at a time")]
    TooMany(u32),
    /// It is there already.
    #[error("pid {0}: is profiled already (give each --pid once)")]
    Twice(u32),
    /// Nothing to probe.
    #[error("pid {0}: no malloc that samplerd knows in it ({1})")]
    NoAllocator(u32, String),
    /// Return probes could crash it.
    #[error("pid {0}: {1}")]
    Harmful(u32, Hazard),
    /// It is gone.
    #[error("pid {0}: exited while it was being attached")]
    Exited(u32),
    /// Anything else.
    #[error("pid {0}: {1}")]
    Other(u32, String),
}

impl AttachError {
    pub(super) fn into_anyhow(self) -> anyhow::Error {
        self.into()
    }
}

impl Worker {
    /// Attaches to a process.
    pub(super) fn attach(&mut self, process: Process) -> Result<(), AttachError> {
        let pid = process.pid;
        if self.attached.values().any(|attached| attached.process.pid == pid) {
            return Err(AttachError::Twice(pid));
        }
        let slot = (0..MAX_PROCESSES)
            .find(|slot| !self.attached.contains_key(slot))
            .ok_or(AttachError::TooMany(pid))?;
        if let Some(hazard) = hazard::check(pid) {
            return Err(AttachError::Harmful(pid, hazard));
        }
        let discovery = self.discover(pid)?;
        if discovery.allocators.is_empty() {
            let why = match discovery.blind.is_empty() {
                true => "no shared or static glibc is mapped".to_owned(),
                false => discovery.blind.join("; "),
            };
            return Err(AttachError::NoAllocator(pid, why));
        }
        let id = self
            .ingest
            .processes
            .insert(self.new_record(&process))
            .ok_or(AttachError::TooMany(pid))?;
        let generation = self.kernel.slots.occupy(slot, pid);
        self.kernel.slots.set_rates(slot, &[self.rate; CLASSES]);
        let other = |error: anyhow::Error| AttachError::Other(pid, format!("{error:#}"));
        self.kernel.totals.reset(slot).map_err(other)?;
        self.kernel.add_target(pid, slot).map_err(other)?;
        self.ingest.sources.insert(
            slot,
            Source {
                process: id,
                pid,
                first_generation: generation,
                generation,
                image: None,
                allocators: Vec::new(),
            },
        );
        self.ingest.open_image(slot);
        let attached = Attached {
            process,
            links: Vec::new(),
            leader_changes: self.kernel.slots.leader_changes(slot),
            next_look: Instant::now() + SWEEP,
            look_period: SWEEP,
            hazard: None,
        };
        self.attached.insert(slot, attached);
        if let Err(error) = self.probe(slot, discovery) {
            let gone = self.attached.get(&slot).is_some_and(|a| !a.process.is_running());
            self.release(slot);
            return Err(if gone { AttachError::Exited(pid) } else { other(error) });
        }
        tracing::info!(pid, slot, engine = %self.engine(), "attached");
        Ok(())
    }

    fn new_record(&self, process: &Process) -> ProcessRecord {
        ProcessRecord {
            pid: process.pid,
            comm: process.comm(),
            exe: process.exe(),
            attached: SystemTime::now(),
            exited: None,
            images: 1,
            interval_bytes: self.config.interval_bytes,
            rate: self.rate,
            lowest_rate: self.rate,
            final_exact: Exact::default(),
            final_lost: Default::default(),
            allocators: Vec::new(),
            blind: Vec::new(),
        }
    }

    fn discover(&mut self, pid: u32) -> Result<Discovery, AttachError> {
        self.discoverer
            .discover(pid)
            .map_err(|error| AttachError::Other(pid, format!("read /proc/{pid}/maps: {error}")))
    }

    /// Attaches to the allocators that are not probed yet.
    fn probe(&mut self, slot: u32, discovery: Discovery) -> anyhow::Result<()> {
        let Some(source) = self.ingest.sources.get_mut(&slot) else { return Ok(()) };
        let Some(attached) = self.attached.get_mut(&slot) else { return Ok(()) };
        let record = self.ingest.processes.get_mut(source.process);
        record.blind = discovery.blind;
        for allocator in discovery.allocators {
            if source.allocators.iter().any(|known| known.identity == allocator.identity) {
                continue;
            }
            let points = points(&allocator, slot, self.config.settings.track_live);
            attached.links.extend(self.kernel.attach(&allocator.file, source.pid, &points)?);
            tracing::info!(pid = source.pid, path = allocator.path, "probing {}", allocator.name);
            record.allocators.push(format!("{} ({})", allocator.name, allocator.path));
            source.allocators.push(allocator);
        }
        // Now: the process may be gone, or another program, when its first sample comes.
        self.ingest.open_image(slot);
        Ok(())
    }

    /// `execve`: the old image's blocks are gone, its probes follow by themselves, and the new image
    /// may have other allocators.
    pub(super) fn image_replaced(&mut self, slot: u32, generation: u32) {
        let Some(source) = self.ingest.sources.get_mut(&slot) else { return };
        if generation < source.generation {
            // Overtaken: a newer image has sent records already, and its blocks are held.
            return;
        }
        if generation > source.generation {
            source.generation = generation;
            source.image = None;
        }
        let record = self.ingest.processes.get_mut(source.process);
        record.images = generation - source.first_generation + 1;
        if let Some(attached) = self.attached.get_mut(&slot) {
            record.comm = attached.process.comm();
            record.exe = attached.process.exe();
            attached.look_period = FIRST_LOOK;
            attached.next_look = Instant::now() + FIRST_LOOK;
        }
        self.renew_links(slot);
        self.spare_harmed(slot);
        self.forget_pending(slot, Some(generation));
        self.end_blocks(slot, Some(generation), Outcome::EndedByExec);
    }

    /// A thread other than the first has called `execve` and become the first: the kernel's links still
    /// wait for the old one. They are dropped, and the next look makes new ones.
    fn renew_links(&mut self, slot: u32) {
        let changes = self.kernel.slots.leader_changes(slot);
        let Some(attached) = self.attached.get_mut(&slot) else { return };
        if attached.leader_changes == changes {
            return;
        }
        attached.leader_changes = changes;
        let links = std::mem::take(&mut attached.links);
        let pid = attached.process.pid;
        self.close(links);
        if let Some(source) = self.ingest.sources.get_mut(&slot) {
            source.allocators.clear();
            self.ingest.processes.get_mut(source.process).allocators.clear();
        }
        tracing::warn!(pid, "a thread replaced the program: its first allocations are not seen");
    }

    /// Takes the probes off a new image that they could harm.
    fn spare_harmed(&mut self, slot: u32) {
        let Some(attached) = self.attached.get_mut(&slot) else { return };
        let pid = attached.process.pid;
        attached.hazard = hazard::check(pid);
        let Some(hazard) = attached.hazard else { return };
        let links = std::mem::take(&mut attached.links);
        self.close(links);
        if let Some(source) = self.ingest.sources.get_mut(&slot) {
            source.allocators.clear();
            let record = self.ingest.processes.get_mut(source.process);
            record.allocators.clear();
            record.blind = vec![hazard.to_string()];
        }
        tracing::warn!(pid, "no longer probed: {hazard}");
    }

    /// Looks for new allocators where it is time to, and for an `execve` whose event was lost.
    pub(super) fn look_after_processes(&mut self) {
        self.closing.retain(|thread| !thread.is_finished());
        let now = Instant::now();
        let due: Vec<u32> = self
            .attached
            .iter()
            .filter(|(_, attached)| attached.next_look <= now)
            .map(|(slot, _)| *slot)
            .collect();
        for slot in due {
            let generation = self.kernel.slots.generation(slot);
            let Some(source) = self.ingest.sources.get(&slot) else { continue };
            let (pid, known) = (source.pid, source.generation);
            if generation != known {
                self.image_replaced(slot, generation);
            }
            if let Some(attached) = self.attached.get_mut(&slot) {
                attached.look_period = (attached.look_period * 2).min(SWEEP);
                attached.next_look = now + attached.look_period;
            }
            if self.attached.get(&slot).is_some_and(|attached| attached.hazard.is_some()) {
                continue;
            }
            // A process that cannot be read now is exiting, or is read at the next look.
            if let Ok(discovery) = self.discover(pid)
                && let Err(error) = self.probe(slot, discovery)
            {
                tracing::warn!(pid, "{error:#}");
            }
        }
    }

    /// The process is gone: its profile stays.
    pub(super) fn detach_exited(&mut self, slot: u32) {
        self.end_blocks(slot, None, Outcome::EndedByExit);
        self.forget_pending(slot, None);
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let (id, pid) = (source.process, source.pid);
        let exact = self.slot_exact(slot);
        let lost = self.slot_lost_moments(slot);
        match self.kernel.totals.read(slot) {
            Ok(totals) => self.retired.add(&totals),
            Err(error) => tracing::warn!(pid, "{error:#}"),
        }
        let record = self.ingest.processes.get_mut(id);
        record.exited = Some(SystemTime::now());
        record.final_exact = exact;
        record.final_lost = lost;
        if let Err(error) = self.kernel.lost.take_slot(slot) {
            tracing::warn!(pid, "clear lost samples: {error}");
        }
        self.release(slot);
        tracing::info!(pid, "exited");
    }

    /// Calls of the slot's process that will never return: all, or those of images before `generation`.
    fn forget_pending(&mut self, slot: u32, generation: Option<u32>) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let ends = |space: Space| generation.is_none_or(|current| space.generation < current);
        match self.kernel.pending.forget(source.pid, ends) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
    }

    fn release(&mut self, slot: u32) {
        self.ingest.sources.remove(&slot);
        self.kernel.slots.vacate(slot);
        if let Some(attached) = self.attached.remove(&slot) {
            self.kernel.remove_target(attached.process.pid);
            self.close(attached.links);
        }
    }

    /// Closes links on a thread of their own.
    pub(super) fn close(&mut self, links: Vec<Link>) {
        if !links.is_empty() {
            self.closing.push(std::thread::spawn(move || drop(links)));
        }
    }

    /// Sets the rates of a process; `asked` is an interval that somebody wants, else it is back-pressure.
    pub(super) fn set_rate(&mut self, slot: u32, rate: Rate, asked: Option<u64>) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        self.kernel.slots.set_rates(slot, &[rate; CLASSES]);
        let record = self.ingest.processes.get_mut(source.process);
        record.rate = rate;
        record.lowest_rate = record.lowest_rate.min(rate);
        if let Some(interval_bytes) = asked {
            record.interval_bytes = interval_bytes;
        }
    }
}

fn points(allocator: &Allocator, slot: u32, track_live: bool) -> Points {
    let mut points = Points::default();
    let mut functions: Vec<_> = allocator.functions.iter().collect();
    // Probes appear one after another: what can end a block comes first.
    functions.sort_by_key(|function| function.role != Role::Realloc);
    for function in functions {
        let offset = function.offset + u64::from(function.placement.displacement);
        let point = (offset, Cookie::new(slot, function.role).0);
        if function.role != Role::Free {
            points.allocating.push(point);
        } else if track_live {
            points.freeing.push(point);
        }
    }
    points
}
