//! The end of an attached process: its probes go, its profile stays.

use super::totals::by_class;
use super::worker::Worker;
use crate::bpf::Link;
use sampler_common::counters::Outcome;
use sampler_common::wire::{Role, Space};
use std::time::SystemTime;

impl Worker {
    /// The process is gone: its profile stays.
    pub(super) fn detach_exited(&mut self, slot: u32) {
        self.end_blocks(slot, None, Outcome::EndedByExit);
        self.forget_pending(slot, None);
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let (id, pid) = (source.process, source.pid);
        self.observe_last(slot, id);
        let totals = self.kernel.totals.read(slot);
        let lost = self.lost_by_slot().remove(&slot).unwrap_or_default();
        let free_calls = self.kernel.hits.read(slot, Role::Free);
        let record = self.ingest.processes.get_mut(id);
        record.final_free_calls = free_calls;
        record.exited = Some(SystemTime::now());
        record.final_lost = lost;
        match totals {
            Ok(totals) => {
                record.final_totals = Some(Box::new(by_class(&totals)));
                self.retired.add(&totals);
            }
            Err(error) => tracing::warn!(pid, "{error:#}"),
        }
        if let Err(error) = self.kernel.lost.clear_slot(slot) {
            tracing::warn!(pid, "clear lost samples: {error}");
        }
        self.release(slot);
        tracing::info!(pid, "exited");
    }

    /// Calls of the slot's process that will never return: all, or those of images before `generation`.
    pub(super) fn forget_pending(&mut self, slot: u32, generation: Option<u32>) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let ends = |space: Space| generation.is_none_or(|current| space.generation < current);
        match self.kernel.pending.forget(source.pid, ends) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
    }

    pub(super) fn release(&mut self, slot: u32) {
        self.ingest.sources.remove(&slot);
        self.kernel.slots.renew(slot);
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
}
