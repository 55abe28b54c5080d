//! The end of an attached process: probes are removed, the profile stays.

use super::facts;
use crate::inspect::discovery::NONE_MAPPED;
use crate::pipeline::bounds;
use crate::pipeline::observe::has_lost;
use crate::pipeline::totals::by_class;
use crate::pipeline::worker::Worker;
use sampler_common::wire::Role;
use std::sync::Arc;
use std::time::SystemTime;

impl Worker {
    /// Detaches the processes in these slots, which were found to be gone. Their records are read
    /// first.
    /// Reading can already end one of the processes and give its slot to another process. So the
    /// check is repeated afterwards.
    pub(in crate::pipeline) fn detach_gone(&mut self, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        self.read_and_handle();
        let mut gone = self.ingest.gone(slots);
        gone.retain(|slot| !self.is_refused_late(*slot));
        self.detach_exited(&gone);
    }

    /// Detaches the processes in these slots, which are gone. Their profiles stay.
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
        // Live-set entries of ended address spaces are removed soon, all at once.
        self.stale.note();
    }

    /// Keeps the kernel side's data of a process that is gone.
    fn keep_last(&mut self, slot: u32) {
        self.note_unseen_of(slot);
        self.note_flood_of(slot);
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let (id, pid) = (profiled.id, profiled.pid);
        // The last program had not mapped an allocator yet when it was inspected, which does not
        // mean that it has none.
        if self.ingest.table.attached(slot).is_some_and(|attached| !attached.timer.has_settled()) {
            self.ingest.processes.get_mut(id).blind_spots.retain(|of| of.why != NONE_MAPPED);
        }
        let work = self.work_of_slot(slot);
        if let Some(process) = self.ingest.table.attached(slot).and_then(|of| of.process.as_ref()) {
            facts::read_cpu_time(self.ingest.processes.get_mut(id), process);
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
        // Reading the cells is expensive, and they are seldom needed.
        let (cells, lost) = match has_lost(&totals) {
            true => (self.lost_cells().remove(&slot), self.lost_by_slot().remove(&slot)),
            false => (None, None),
        };
        let by_class = by_class(&totals);
        self.note_ring_pressure(slot);
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

    /// Releases a slot, which is offered to other processes. A vacant slot is ignored: a slot that
    /// is offered twice would belong to two processes.
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
        // The arrivals of the old process do not apply to the next process in the slot.
        self.ingest.arrivals.forget(slot);
        if let Some(pid) = pid {
            self.kernel.targets.vacate(pid, slot);
        }
        self.links.detach_own(slot, &Arc::default());
        self.close_left();
        if self.config.is_open()
            && let Err(error) =
                self.make_ready(slot).and_then(|_| self.kernel.targets.add_free_slot(slot))
        {
            tracing::warn!("{error:#}");
        }
    }
}
