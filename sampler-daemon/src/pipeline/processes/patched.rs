//! Functions whose code in memory differs from their file's ([`crate::inspect::code::in_memory`]):
//! they are left unprobed and reported.
//!
//! Each function of a process is compared before the attach, and again at each inspection: a
//! program may patch itself later. Then the probe is removed at once.
//! When the kernel removes a probe, it keeps the patch. But while the probe is registered, the
//! kernel writes the breakpoint again over the patch as soon as mappings of the file merge.
//! A shared link loses the function for all processes.

use super::attach::not_probed;
use crate::inspect::allocator::{Allocator, Function};
use crate::inspect::code::in_memory::{Code, Found};
use crate::inspect::code::patched::Patched;
use crate::inspect::discovery::Discovery;
use crate::inspect::mappings::{self, Mapping};
use crate::inspect::process::injected::Image;
use crate::pipeline::worker::Worker;
use sampler_common::note::BlindSpot;
use sampler_common::wire::{LiveEntry, LiveKey};
use std::io;

impl Worker {
    /// What can be probed in a process with these mappings, without functions that are patched in
    /// it.
    pub(super) fn discover_in_mappings(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
    ) -> io::Result<Discovery> {
        let mut discovery = self.discoverer.discover_in_mappings(pid, mappings)?;
        let is_hooked = Image::find(pid, mappings).and_then(|image| image.is_hooked());
        // An ejected image stays mapped, and samples nothing.
        let ejected = usize::from(is_hooked == Some(false));
        if discovery.samplers.len() <= ejected {
            self.request_injection(pid, mappings, &mut discovery);
        }
        // If a process's memory cannot be read, nothing is compared; the attach fails as well.
        if let Ok(code) = Code::open(pid, mappings) {
            discovery.exclude_patched(pid, |allocator, function| {
                let is_ours = self.is_probed(pid, allocator, function);
                let found = code.find(allocator, function, is_ours);
                matches!(found, Found::Other | Found::Unmapped)
            });
        }
        Ok(discovery)
    }

    /// Whether a function of a process has one of our probes.
    fn is_probed(&self, pid: u32, allocator: &Allocator, function: &Function) -> bool {
        let sources = self.ingest.table.values().filter(|of| of.pid == pid);
        let own = sources.flat_map(|of| &of.allocators);
        self.links
            .shared
            .allocators()
            .chain(own)
            .filter(|of| of.identity == allocator.identity)
            .flat_map(|of| &of.functions)
            .any(|of| of.offset == function.offset)
    }

    /// Removes functions from shared links that are patched in one process.
    pub(super) fn exclude_for_all(&mut self, patched: &[Patched]) {
        if self.config.has_own_links() {
            return;
        }
        for of in patched {
            match self.links.leave_out(&mut self.kernel, of) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => tracing::warn!(pid = of.pid, path = of.path, "{error:#}"),
            }
            // Each process that maps the file reports the function, or attaches to the file again.
            let all = self.ingest.table.all_attached_mut();
            all.for_each(|(_, of)| of.inspect_all_again());
        }
    }

    /// Removes probes from functions that the process in this slot has patched since the attach.
    /// Returns whether a window is skipped because of that.
    pub(super) fn exclude_newly_patched(&mut self, slot: u32, mappings: &[Mapping]) -> bool {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return false };
        let Some(attached) = &mut profiled.attached else { return false };
        let (id, pid) = (profiled.id, profiled.pid);
        let Ok(code) = Code::open(pid, mappings) else { return false };
        let is_patched = |allocator: &Allocator, function: &Function| {
            code.find(allocator, function, true) == Found::Other
        };
        let mut found = Vec::new();
        for allocator in &mut profiled.allocators {
            if let Some(patched) = Patched::find(pid, allocator, |of| is_patched(allocator, of)) {
                tracing::warn!(pid, "no longer probed: {}", patched.blind_spot(pid));
                patched.leave_out(allocator);
                found.push((patched, allocator.clone()));
            }
        }
        if found.is_empty() {
            return false;
        }
        found.iter().for_each(|(patched, _)| patched.clone().add_to(&mut attached.patched));
        attached.inspect_all_again();
        if self.config.windows.is_some() {
            let is_open = self.links.has_own(slot);
            if is_open {
                self.skip_window(slot);
            }
            return is_open;
        }
        for (patched, allocator) in found {
            match self.config.has_own_links() {
                true => {
                    let again = self.links.reattach_own(&mut self.kernel, slot, pid, &allocator);
                    if let Err(error) = again {
                        tracing::warn!(pid, path = allocator.path, "{error:#}");
                        // The next inspection, which is soon, attaches again.
                        self.ingest.processes.get_mut(id).blind_spots.push(not_probed(&error));
                    }
                }
                false => self.exclude_for_all(&[patched]),
            }
        }
        false
    }

    /// As [`Worker::exclude_newly_patched`], before a window.
    pub(in crate::pipeline) fn exclude_patched_before_window(&mut self, slot: u32) -> bool {
        let pid = self.ingest.table.get(slot).map(|profiled| profiled.pid);
        // A process that cannot be read is exiting.
        let mappings = pid.and_then(|pid| mappings::read_some(pid).ok());
        mappings.is_some_and(|mappings| self.exclude_newly_patched(slot, &mappings))
    }

    /// Reports the unprobed functions of a process. If some of its blocks would end unseen, none of
    /// its blocks are held.
    pub(super) fn report_patched(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let Some(attached) = &profiled.attached else { return };
        let pid = profiled.pid;
        let of_others = profiled.allocators.iter().flat_map(|of| self.links.shared.left_out(of));
        let all: Vec<&Patched> =
            attached.patched.iter().chain(of_others.filter(|of| of.pid != pid)).collect();
        let patched: Vec<BlindSpot> = all.iter().map(|of| of.blind_spot(pid)).collect();
        let leaves_blocks = all.iter().any(|of| of.leaves_blocks());
        let record = self.ingest.processes.get_mut(profiled.id);
        record.has_unseen_allocations |= all.iter().any(|of| of.leaves_allocations());
        for of in patched {
            if !record.blind_spots.contains(&of) {
                record.blind_spots.push(of);
            }
        }
        if leaves_blocks && !self.kernel.slots.holds_nothing(slot) {
            self.hold_nothing(slot);
        }
    }

    /// The limitation to report for processes that are not compared.
    pub(in crate::pipeline) fn patched_limits(&self) -> Option<String> {
        let is_shared = !self.config.has_own_links();
        is_shared.then(|| "functions that a process patches in memory while they are probed: their probes are removed at the next inspection".to_owned())
    }

    /// Holds no block of a process from now on, and forgets its held blocks.
    fn hold_nothing(&mut self, slot: u32) {
        self.kernel.slots.set_holds_nothing(slot, true);
        self.forget_live(slot, |_| true);
        self.read_ring();
        self.reconcile();
    }

    /// Removes those of a process's blocks from the live set for which `is` holds.
    pub(in crate::pipeline) fn forget_live(&mut self, slot: u32, is: impl Fn(&LiveEntry) -> bool) {
        match self.kernel.live.entries() {
            Ok(entries) => {
                let of_slot =
                    |(key, entry): &&(LiveKey, LiveEntry)| key.space.slot == slot && is(entry);
                for (key, entry) in entries.iter().filter(of_slot) {
                    if let Err(error) = self.kernel.live.remove(key, entry.sample) {
                        tracing::warn!("take out of the live set: {error}");
                    }
                }
            }
            Err(error) => tracing::warn!("read the live set: {error}"),
        }
    }
}
