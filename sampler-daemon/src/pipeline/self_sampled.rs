//! Processes that sample by themselves: their probes in place of ours.
//!
//! A file with `otel_memory` probes is not probed for its malloc family. Where such a file is also the process's own `malloc` (a preloaded shim, say),
//! what other files' `malloc` gives out is what that one asked for: in this process ours take no samples, though the trap of a link that processes
//! share is paid all the same. A process with both, such probes and a `malloc` of another file that is its own, is sampled by both.
//! Exact totals cover our probes only, so they are not known of any of these processes.

use super::config::AttachMode;
use super::facts;
use super::process::ProfiledProcess;
use super::worker::Worker;
use crate::inspect::discovery::Discovery;
use crate::inspect::process::Process;
use crate::store::{ProcessRecord, SamplingRecord};
use sampler_common::source::SampleSource;
use std::sync::Arc;

impl Worker {
    /// Attaches to the files of a process that sample by themselves and are not probed yet.
    pub(super) fn probe_samplers(
        &mut self,
        slot: u32,
        discovery: &mut Discovery,
    ) -> anyhow::Result<()> {
        self.set_self_sampled(slot, discovery.is_sampled);
        self.register_library(slot, discovery);
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return Ok(()) };
        let record = self.ingest.processes.get_mut(profiled.id);
        for sampler in std::mem::take(&mut discovery.samplers) {
            Arc::make_mut(&mut record.sampling).will_take_itself();
            // Of an injected one it is seen by its hooks whether it samples.
            if sampler.source() != SampleSource::Injected {
                record.sources.insert(sampler.source());
            }
            let identity = sampler.allocator.identity;
            if profiled.allocators.iter().any(|known| known.identity == identity) {
                continue;
            }
            let Worker { links, kernel, .. } = self;
            match self.config.attach_mode {
                AttachMode::Pids => {
                    links.attach_own_sampler(kernel, slot, profiled.pid, &sampler)?
                }
                _ => links.attach_shared_sampler(kernel, &sampler)?,
            }
            let path = &sampler.allocator.path;
            tracing::info!(pid = profiled.pid, path, "samples by itself (otel_memory)");
            record.allocators.push(sampler.allocator.title());
            profiled.allocators.push(sampler.allocator);
        }
        Ok(())
    }

    /// Gives a process that samples everything by itself its slot before it allocates, where it can: what it samples until the daemon looks
    /// would count twice.
    pub(super) fn admit_self_sampled(&mut self, pid: u32) {
        if self.ingest.table.attached_slot(pid).is_some() {
            return;
        }
        let Ok(process) = Process::open(pid) else { return };
        let Some(slot) = self.kernel.targets.withdraw() else { return };
        if let Err(error) = self.enter_self_sampled(slot, process) {
            // Most likely it has just taken another slot by itself.
            tracing::debug!(pid, slot, "{error:#}");
            let offered =
                self.make_ready(slot).and_then(|_| self.kernel.targets.add_free_slot(slot));
            if let Err(error) = offered {
                tracing::warn!("{error:#}");
            }
        }
    }

    fn enter_self_sampled(&mut self, slot: u32, process: Process) -> anyhow::Result<()> {
        let pid = process.pid;
        let mut sampling = SamplingRecord::new(self.config.sampling);
        sampling.begin_self_sampled();
        let generation = self.make_ready(slot)?;
        self.kernel.slots.set_designs(slot, &sampling.designs);
        self.kernel.targets.claim(pid, slot)?;
        let mut record = ProcessRecord::new(pid, Arc::new(sampling));
        facts::read(&mut record, &process);
        let id = self.ingest.processes.insert(record);
        let mut profiled = ProfiledProcess::new(id, pid, generation);
        let mut attached = self.new_attached(slot, Some(process));
        // The probes are found as those of all others are.
        attached.timer.look_now();
        profiled.attached = Some(attached);
        self.ingest.table.insert(slot, profiled);
        Ok(())
    }

    /// Whether our own probes take no samples of the process in this slot.
    fn set_self_sampled(&mut self, slot: u32, is_self_sampled: bool) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let sampling = &mut self.ingest.processes.get_mut(profiled.id).sampling;
        if sampling.is_self_sampled != is_self_sampled {
            let sampling = Arc::make_mut(sampling);
            sampling.set_self_sampled(is_self_sampled);
            self.kernel.slots.set_designs(slot, &sampling.designs);
        }
    }
}
