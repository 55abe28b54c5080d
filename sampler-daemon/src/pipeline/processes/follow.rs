//! Follows an attached process: new program images and new allocators.

use super::facts;
use super::schedule::{NEW_IMAGE_WAIT, longest_wait};
use crate::inspect::allocator::Allocator;
use crate::inspect::discovery::Discovery;
use crate::inspect::mappings;
use crate::inspect::mappings::unchanged;
use crate::pipeline::config::AttachMode;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use rustc_hash::FxHashSet;
use sampler_common::counters::Outcome;
use std::sync::Arc;
use std::time::Instant;

impl Worker {
    /// Handles an `execve`: the blocks of the old image are gone, its probes follow by themselves,
    /// and the new image may have other allocators.
    pub(in crate::pipeline) fn image_replaced(&mut self, slot: u32, generation: u32) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        if generation < profiled.generation {
            // The event is late: a newer image has sent records already, and its blocks are held.
            return;
        }
        if generation > profiled.generation {
            profiled.generation = generation;
            profiled.image = None;
        }
        if self.has_become_excluded(slot) {
            return;
        }
        self.cut_window(slot);
        self.ingest.last_collection.has_ended = true;
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        self.ingest.mapped.of_image(profiled.id, generation);
        let record = self.ingest.processes.get_mut(profiled.id);
        record.images = generation - profiled.first_generation + 1;
        // Blind spots belong to the old image; the next inspection finds those of the new one.
        record.blind_spots.clear();
        // Allocations before the injection, or up to the end, are not seen.
        record.has_unseen_allocations |= self.injections.is_some();
        if let Some(attached) = self.ingest.table.attached_mut(slot) {
            if let Some(process) = &attached.process {
                facts::read(record, process);
            }
            // If events report new mappings, they say when to inspect.
            attached.has_new_image = true;
            attached.patched.clear();
            attached.fingerprint.forget();
            attached.timer.begin_image(self.process_events.is_open());
        }
        self.kernel.slots.set_holds_nothing(slot, false);
        self.renew_links(slot);
        if self.detach_hazardous(slot) {
            return;
        }
        let _ = self.ingest.end_blocks(&[slot], Some(generation), Outcome::EndedByExec);
        self.stale.note();
    }

    /// Handles an `execve` by a thread other than the first, which has become the first. The
    /// kernel's links still wait for the old first thread. They are dropped, and the next
    /// inspection makes new ones.
    fn renew_links(&mut self, slot: u32) {
        let changes = self.kernel.slots.leader_changes(slot);
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(attached) = &mut profiled.attached else { return };
        if attached.leader_changes == changes {
            return;
        }
        attached.leader_changes = changes;
        let pid = profiled.pid;
        if !self.links.has_own(slot) {
            // A shared link does not filter by thread.
            return;
        }
        self.unprobe(slot);
        if let Some(profiled) = self.ingest.table.get(slot) {
            self.ingest.processes.get_mut(profiled.id).has_unseen_allocations = true;
        }
        tracing::warn!(pid, "a thread replaced the program: its first allocations are not seen");
    }

    /// Removes the probes from a new image that they could harm. Returns whether the process has
    /// lost its slot.
    fn detach_hazardous(&mut self, slot: u32) -> bool {
        let Some(profiled) = self.ingest.table.get(slot) else { return false };
        let pid = profiled.pid;
        if self.config.is_open() {
            let hazard = self.hazard_of(pid);
            hazard.into_iter().for_each(|hazard| self.refuse(pid, hazard));
            return hazard.is_some();
        }
        let hazard = self.hazard(pid);
        if let Some(attached) = self.ingest.table.attached_mut(slot) {
            attached.hazard = hazard;
        }
        let Some(hazard) = hazard else { return false };
        self.unprobe(slot);
        if self.config.attach_mode != AttachMode::Pids {
            self.exclude(slot);
        }
        if let Some(profiled) = self.ingest.table.get(slot) {
            let record = self.ingest.processes.get_mut(profiled.id);
            record.blind_spots = vec![hazard.to_string().into()];
            record.has_unseen_allocations = true;
        }
        match self.config.has_own_links() {
            true => tracing::warn!(pid, "no longer probed: {hazard}"),
            // Shared links are in every process that maps their file.
            false => tracing::warn!(
                pid,
                "no longer profiled, though links that are shared stay: {hazard}"
            ),
        }
        false
    }

    /// Removes the probes from a process that stays in its slot.
    fn unprobe(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        if let Some(attached) = &mut profiled.attached {
            attached.fingerprint.forget();
        }
        profiled.allocators.clear();
        self.ingest.processes.get_mut(profiled.id).allocators.clear();
        self.links.detach_own(slot, &Arc::default());
        self.close_left();
    }

    /// Closes the links in files that no listed process maps any more. (If processes appear by
    /// themselves, a survey does it.)
    pub(super) fn close_left(&mut self) {
        if self.config.attach_mode != AttachMode::PidsSharedLinks {
            return;
        }
        let all = self.ingest.table.values();
        let kept = all.flat_map(|of| of.allocators.iter().map(|of| of.identity)).collect();
        self.links.detach_others_than(&kept);
    }

    /// Drops allocators that a new program image has not mapped when it has settled. Otherwise a
    /// process that keeps executing programs would collect the files of all of them.
    /// Before the image has settled, the same file may be mapped again at any moment.
    fn leave_unmapped(&mut self, slot: u32, discovery: &Discovery) {
        let generation = self.kernel.slots.generation(slot);
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(attached) = &mut profiled.attached else { return };
        // Of an image that is newer than the last event nothing has been seen.
        if !attached.has_new_image
            || !attached.timer.has_settled()
            || generation != profiled.generation
        {
            return;
        }
        attached.has_new_image = false;
        profiled.allocators.retain(|of| discovery.has(of.identity));
        let record = self.ingest.processes.get_mut(profiled.id);
        record.allocators = profiled.allocators.iter().map(Allocator::title).collect();
        self.links.detach_unmapped(slot, |file| discovery.has(file));
        self.close_left();
    }

    /// Inspects processes again with large files, some of which have been searched.
    fn inspect_unfinished(&mut self) {
        if !self.survey.has_new_results(self.discoverer.searched_large_files()) {
            return;
        }
        let all = self.ingest.table.all_attached_mut();
        all.filter(|(_, of)| of.is_unfinished).for_each(|(_, of)| of.timer.inspect_now());
    }

    /// Inspects processes for new allocators when they are due, and for an `execve` whose event was
    /// lost.
    pub(in crate::pipeline) fn look_at_due_processes(&mut self) {
        self.links.forget_closed();
        self.inspect_unfinished();
        let now = Instant::now();
        let longest = longest_wait(self.config.attach_mode, self.process_events.is_open());
        let due: Vec<u32> = self
            .ingest
            .table
            .all_attached()
            .filter(|(.., attached)| attached.timer.is_due(now))
            .map(|(slot, ..)| slot)
            .collect();
        // Shared links cannot be removed from one process.
        let may_spare = !due.is_empty() && self.config.has_own_links();
        let diverted = if may_spare { self.diverted() } else { FxHashSet::default() };
        for slot in due {
            let generation = self.kernel.slots.generation(slot);
            let Some(profiled) = self.ingest.table.get(slot) else { continue };
            let (pid, known) = (profiled.pid, profiled.generation);
            if generation != known {
                self.image_replaced(slot, generation);
            }
            if diverted.contains(&pid) {
                self.detach_hazardous(slot);
            }
            self.ingest.look_at_processor(slot);
            self.ingest.restore_library_interval(slot);
            self.look_at_hooks(slot);
            self.keep_budget(slot);
            if let Some(attached) = self.ingest.table.attached_mut(slot) {
                attached.timer.inspected(now, longest);
            }
            if self.ingest.table.attached(slot).is_some_and(|attached| attached.hazard.is_none()) {
                self.look_for_allocators(slot, pid);
            }
        }
    }

    /// Probes new allocators, unless nothing has changed since the last inspection.
    fn look_for_allocators(&mut self, slot: u32, pid: u32) {
        // A process that cannot be read now is exiting, or is read at the next inspection.
        let Ok(mappings) = mappings::read_some(pid) else { return };
        self.exclude_newly_patched(slot, &mappings);
        self.find_python(slot, &mappings);
        let files = unchanged::files(&mappings);
        let Some(attached) = self.ingest.table.attached(slot) else { return };
        if !attached.has_new_image && attached.fingerprint.is_known(&files) {
            return;
        }
        let Ok(discovery) = self.discover_in_mappings(pid, &mappings) else { return };
        if !discovery.is_unfinished {
            self.leave_unmapped(slot, &discovery);
        }
        // What could not be seen now may be visible next time.
        let is_all = discovery.blind_spots.is_empty();
        let probed = self.probe(slot, discovery);
        if let Err(error) = &probed {
            tracing::warn!(pid, "{error:#}");
        }
        if let Some(attached) =
            self.ingest.table.attached_mut(slot).filter(|_| is_all && probed.is_ok())
        {
            attached.fingerprint.note(files);
        }
    }
}

impl Ingest {
    /// Inspects a process again soon.
    pub(in crate::pipeline) fn inspect_again(&mut self, slot: u32) {
        if let Some(attached) = self.table.attached_mut(slot) {
            attached.timer.inspect_after(NEW_IMAGE_WAIT);
        }
    }
}
