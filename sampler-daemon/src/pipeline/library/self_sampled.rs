//! Processes that sample by themselves: their own probes replace ours.
//!
//! In a file with `otel_memory` probes, the malloc family is not probed. Such a file may also be
//! the process's own `malloc` (a preloaded shim, say).
//! Then it requests the memory that other files' `malloc` gives out. So our probes take no samples
//! in this process, though a shared link's trap is paid all the same.
//! A process with such probes and another file's `malloc` as its own is sampled by both.
//! Exact totals cover our probes only, so they are unknown for all these processes.

use crate::inspect::discovery::Discovery;
use crate::inspect::process::Process;
use crate::pipeline::config::AttachMode;
use crate::pipeline::processes::facts;
use crate::pipeline::processes::process::ProfiledProcess;
use crate::pipeline::worker::Worker;
use crate::store::{ProcessRecord, SamplingRecord};
use sampler_common::source::SampleSource;
use std::sync::Arc;

impl Worker {
    /// Attaches to the not yet probed files of a process that sample by themselves.
    pub(in crate::pipeline) fn probe_samplers(
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
            // The hooks of an injected process show whether it samples.
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
            if sampler.source() != SampleSource::Injected {
                tracing::info!(pid = profiled.pid, path, "samples by itself (otel_memory)");
            }
            record.allocators.push(sampler.allocator.title());
            profiled.allocators.push(sampler.allocator);
        }
        Ok(())
    }

    /// Gives a process that samples everything by itself a slot before it allocates, if possible.
    /// Without it, samples before the first inspection would count twice.
    pub(in crate::pipeline) fn admit_self_sampled(&mut self, pid: u32) {
        if self.ingest.table.attached_slot(pid).is_some() {
            return;
        }
        let Ok(process) = Process::open(pid) else { return };
        let Some(slot) = self.kernel.targets.withdraw() else { return };
        if let Err(error) = self.enter_self_sampled(slot, process) {
            // Usually the process has just taken another slot by itself.
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
        // The next inspection finds the probes, as for all other processes.
        attached.timer.inspect_now();
        profiled.attached = Some(attached);
        self.ingest.table.insert(slot, profiled);
        Ok(())
    }

    /// Sets whether our own probes take no samples of the process in this slot.
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
