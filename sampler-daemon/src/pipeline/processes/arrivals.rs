//! Processes that join the profile by themselves: each takes a slot in the kernel with its first
//! allocation. Also, which attached processes have ended.

use super::facts;
use crate::inspect::process::Process;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::SamplingRecord;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

/// The blind spot of a process that ended before its mappings were read.
const GONE: &str = "gone before it could be looked at: little more than its command name is known";

impl Worker {
    /// Offers all vacant slots to the kernel side.
    pub(in crate::pipeline) fn add_free_slots(&mut self) -> anyhow::Result<()> {
        for slot in 0..self.config.settings.slots {
            if !self.ingest.table.is_attached(slot) {
                self.make_ready(slot)?;
                self.kernel.targets.add_free_slot(slot)?;
            }
        }
        Ok(())
    }

    /// Gives vacant slots the default sampling.
    pub(in crate::pipeline) fn ready_vacant(&mut self) {
        let designs = SamplingRecord::new(self.config.sampling).designs;
        let Worker { ingest, kernel, config, .. } = self;
        let vacant = (0..config.settings.slots).filter(|slot| !ingest.table.is_attached(*slot));
        vacant.for_each(|slot| kernel.slots.set_designs(slot, &designs));
    }

    /// Inspects a process that has taken a slot, while the process exists.
    pub(in crate::pipeline) fn appeared(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let (pid, id) = (profiled.pid, profiled.id);
        let process = Process::open_running(pid).ok();
        let attached = self.new_attached(slot, process);
        if let Some(process) = &attached.process {
            facts::read(self.ingest.processes.get_mut(id), process);
        }
        let is_there = attached.process.is_some();
        if let Some(profiled) = self.ingest.table.get_mut(slot) {
            profiled.attached = Some(attached);
        }
        if !is_there {
            self.watch_end(slot);
        }
        if self.drops_if_excluded(slot) {
            return;
        }
        if let Some(hazard) = self.hazard_of(pid) {
            self.ingest.drop_seen(id);
            self.refuse(pid, hazard);
            return;
        }
        self.end_refusal(pid);
        if !is_there {
            self.remember_gone(slot);
            let record = self.ingest.processes.get_mut(id);
            if record.exe.is_empty() {
                record.blind_spots = vec![GONE.into()];
            }
            return;
        }
        match self.discover(pid) {
            Ok(discovery) if !discovery.allocators.is_empty() => {
                if let Err(error) = self.probe(slot, discovery) {
                    tracing::warn!(pid, "{error:#}");
                }
            }
            // The process has called an allocator, but has none: it has executed another program
            // meanwhile, or is exiting.
            _ => self.ingest.inspect_again(slot),
        }
        tracing::debug!(pid, slot, "appeared");
    }

    /// Keeps what events have shown of a process that was gone before it could be inspected.
    fn remember_gone(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(image) = self.ingest.history.at(profiled.pid, u64::MAX) else { return };
        let record = self.ingest.processes.get_mut(profiled.id);
        record.exe = image.exe().unwrap_or_default().to_owned();
        for allocator in self.process_events.files().allocators(&image.mappings) {
            record.allocators.push(allocator.title());
            profiled.allocators.push(allocator);
        }
    }

    /// Excludes the process in this slot from now on. The process still runs into shared probes and
    /// pays for them. With multi and perf probes, each of its allocating calls is probed at its
    /// return too. Where such return probes can kill a process, there are no shared links
    /// ([`crate::inspect::hazard::check_shared`]).
    pub(in crate::pipeline) fn exclude(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let pid = profiled.pid;
        if let Err(error) = self.kernel.targets.exclude(pid) {
            tracing::warn!(pid, "{error:#}");
        }
    }

    /// Watches for the end of the process in this slot: it may end at any moment, or has ended.
    pub(in crate::pipeline) fn watch_end(&mut self, slot: u32) {
        if self.ingest.table.is_attached(slot) && !self.leaving.contains(&slot) {
            self.leaving.push(slot);
        }
    }
}

impl Ingest {
    /// Slots of all attached processes.
    pub(in crate::pipeline) fn slots(&self) -> Vec<u32> {
        self.table.attached_slots()
    }

    /// Those of `slots` whose process has ended.
    pub(in crate::pipeline) fn gone(&self, slots: &[u32]) -> Vec<u32> {
        let mut gone = Vec::new();
        let mut descriptors = Vec::new();
        let mut open = Vec::new();
        for slot in slots {
            let Some(attached) = self.table.attached(*slot) else { continue };
            match &attached.process {
                Some(process) => {
                    descriptors
                        .push(PollFd::from_borrowed_fd(process.pidfd.as_fd(), PollFlags::IN));
                    open.push(*slot);
                }
                None => gone.push(*slot),
            }
        }
        if descriptors.is_empty() {
            return gone;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted poll is repeated in the next turn.
        if poll(&mut descriptors, Some(&now)).is_ok_and(|ready| ready > 0) {
            let ready = open.iter().zip(&descriptors).filter(|(_, fd)| !fd.revents().is_empty());
            gone.extend(ready.map(|(slot, _)| *slot));
        }
        gone
    }
}
