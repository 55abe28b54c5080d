//! The end of an attached process: its probes go, its profile stays.

use super::bounds;
use super::facts;
use super::observe::has_lost;
use super::totals::by_class;
use super::worker::Worker;
use crate::inspect::discovery::NONE_MAPPED;
use sampler_common::wire::Role;
use std::sync::Arc;
use std::time::SystemTime;

impl Worker {
    /// The processes in these slots have been seen to be gone: what they have sent is read first. That can end one of them already, and another
    /// process may have its slot by then, so that it is asked again who is gone.
    pub(super) fn detach_gone(&mut self, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        self.settle();
        let mut gone = self.gone(slots);
        gone.retain(|slot| !self.is_refused_late(*slot));
        self.detach_exited(&gone);
    }

    /// The processes in these slots are gone: their profiles stay.
    pub(super) fn detach_exited(&mut self, slots: &[u32]) {
        self.end_all_blocks(slots);
        for slot in slots {
            self.end_open_window(*slot);
            self.keep_last(*slot);
            let process = self.ingest.table.id_of(*slot);
            if let Some(process) = process {
                self.ingest.end_mappings(process);
            }
            self.release(*slot);
            if let Some(process) = process {
                self.ingest.exit(process);
            }
        }
        // Entries of address spaces that are no more go soon, all at once.
        self.stale.note();
    }

    /// Keeps what the kernel side knows of a process that is gone.
    fn keep_last(&mut self, slot: u32) {
        self.note_unseen_of(slot);
        self.note_flood_of(slot);
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let (id, pid) = (profiled.id, profiled.pid);
        // Its last program had not mapped one yet when it was looked at: that says nothing.
        if self.ingest.table.attached(slot).is_some_and(|attached| !attached.timer.has_settled()) {
            self.ingest.processes.get_mut(id).blind.retain(|of| of.why != NONE_MAPPED);
        }
        let work = self.work_of_slot(slot);
        if let Some(process) = self.ingest.table.attached(slot).and_then(|of| of.process.as_ref()) {
            facts::look(self.ingest.processes.get_mut(id), process);
        }
        self.ingest.processes.get_mut(id).spending.work = work;
        let free_calls = self.kernel.hits.read(slot, Role::Free).into_iter().sum();
        let totals = match self.kernel.totals.read(slot) {
            Ok(totals) => totals,
            Err(error) => {
                tracing::warn!(pid, "{error:#}");
                self.ingest.processes.get_mut(id).exited = Some(SystemTime::now());
                self.ingest.windows.forget(id);
                return;
            }
        };
        // Reading the cells is dear, and they are seldom needed.
        let (cells, lost) = match has_lost(&totals) {
            true => (self.lost_cells().remove(&slot), self.lost_by_slot().remove(&slot)),
            false => (None, None),
        };
        let by_class = by_class(&totals);
        self.note_brake(slot);
        let bands = self.ingest.processes.get(id).bands();
        self.ingest.windows.observe(id, &by_class, &bands, &cells.unwrap_or_default());
        self.ingest.windows.forget(id);
        if lost.is_some()
            && let Err(error) = self.kernel.lost.take_slot(slot)
        {
            tracing::warn!(pid, "clear lost samples: {error}");
        }
        let record = self.ingest.processes.get_mut(id);
        record.final_free_calls = free_calls;
        record.exited = Some(SystemTime::now());
        record.final_bounds = bounds::of_totals(&totals);
        record.final_lost = lost.unwrap_or_default();
        record.final_totals = Some(Box::new(by_class));
        self.retired.add(&totals);
        tracing::debug!(pid, "exited");
    }

    /// A process leaves its slot, which is offered to others. Nothing is done of a slot that nobody has: offered twice, it would be two processes'.
    pub(super) fn release(&mut self, slot: u32) {
        if !self.ingest.table.is_attached(slot) {
            return;
        }
        self.end_cycle(slot);
        let pid = self.ingest.table.take(slot).map(|profiled| profiled.pid);
        self.ingest.stack_cache.end(slot);
        self.leaving.retain(|of| *of != slot);
        self.kernel.slots.renew(slot);
        self.pressure.forget(slot);
        // What it has sent says nothing of whoever has the slot next.
        self.ingest.arrivals.forget(slot);
        if let Some(pid) = pid {
            self.kernel.targets.vacate(pid, slot);
        }
        self.links.detach_own(slot, &Arc::default());
        self.close_left();
        if self.is_open()
            && let Err(error) =
                self.make_ready(slot).and_then(|_| self.kernel.targets.add_free_slot(slot))
        {
            tracing::warn!("{error:#}");
        }
    }
}
