//! The one table of all links of uprobes and USDT probes. Nothing else attaches or detaches such a
//! link.
//!
//! A link belongs to one process, or to all processes that map its file. A shared link counts only
//! calls of processes that have a slot. In `--windows` mode, a process has links only while its
//! window is open.

mod closing;
mod own;
mod points;
mod shared;

pub use shared::{MAX_FILES, SharedLinks};

use crate::bpf::{Kernel, Link, Settings};
use crate::inspect::allocator::Allocator;
use crate::inspect::code::patched::Patched;
use crate::inspect::discovery::SelfSampler;
use closing::ClosingLinks;
use own::OwnLinks;
use points::{Owner, attach, attach_sampler, reattach};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A file: its device and inode.
pub type FileId = (u64, u64);

/// All links of the daemon, except those of its own functions that measure prices at the start.
pub struct LinkTable {
    settings: Settings,
    /// Links of single processes, by slot.
    own: FxHashMap<u32, OwnLinks>,
    /// Links that processes share.
    pub shared: SharedLinks,
    closing: ClosingLinks,
}

impl LinkTable {
    /// Creates an empty table.
    pub fn new(settings: Settings) -> LinkTable {
        LinkTable {
            settings,
            own: FxHashMap::default(),
            shared: SharedLinks::default(),
            closing: ClosingLinks::default(),
        }
    }

    /// Attaches to an allocator in the process of a slot.
    pub fn attach_own(
        &mut self,
        kernel: &mut Kernel,
        slot: u32,
        pid: u32,
        allocator: &Allocator,
    ) -> anyhow::Result<()> {
        let links = attach(kernel, allocator, Owner::Process { pid, slot }, &self.settings)?;
        self.own.entry(slot).or_default().add(allocator.identity, links);
        Ok(())
    }

    /// Attaches to a file that samples by itself, in the process of a slot.
    pub fn attach_own_sampler(
        &mut self,
        kernel: &mut Kernel,
        slot: u32,
        pid: u32,
        sampler: &SelfSampler,
    ) -> anyhow::Result<()> {
        let owner = Owner::Process { pid, slot };
        let links = attach_sampler(kernel, sampler, owner, &self.settings)?;
        self.own.entry(slot).or_default().add(sampler.allocator.identity, links);
        Ok(())
    }

    /// Attaches to the allocators of a process until its window ends. Frees are not probed.
    pub fn attach_for_window(
        &mut self,
        kernel: &mut Kernel,
        slot: u32,
        pid: u32,
        allocators: &[Allocator],
    ) -> anyhow::Result<()> {
        let settings = Settings { track_live: false, ..self.settings };
        let own = self.own.entry(slot).or_default();
        for allocator in allocators {
            let owner = Owner::Process { pid, slot };
            own.add_for_window(attach(kernel, allocator, owner, &settings)?);
        }
        Ok(())
    }

    /// Replaces the links of an allocator in a process by links to the functions that are left in
    /// `allocator`. After an error, the process has no links in the file.
    pub fn reattach_own(
        &mut self,
        kernel: &mut Kernel,
        slot: u32,
        pid: u32,
        allocator: &Allocator,
    ) -> anyhow::Result<()> {
        let own = self.own.entry(slot).or_default();
        let old = own.take_of(allocator.identity);
        let owner = Owner::Process { pid, slot };
        let links = reattach(kernel, allocator, owner, &self.settings, old)?;
        own.add(allocator.identity, links);
        Ok(())
    }

    /// Whether the process of a slot has its own links in a file.
    pub fn has_own_in(&self, slot: u32, file: FileId) -> bool {
        self.own.get(&slot).is_some_and(|own| own.has(file))
    }

    /// Whether the process of a slot has its own links.
    pub fn has_own(&self, slot: u32) -> bool {
        self.own.get(&slot).is_some_and(|own| !own.is_empty())
    }

    /// Detaches all own links of the process of a slot. Adds the CPU time that closing takes to
    /// `spent_ns`.
    pub fn detach_own(&mut self, slot: u32, spent_ns: &Arc<AtomicU64>) {
        if let Some(mut own) = self.own.remove(&slot) {
            self.closing.begin_close(own.take(), spent_ns);
        }
    }

    /// Detaches the links of the process of a slot in files that the process no longer maps.
    pub fn detach_unmapped(&mut self, slot: u32, is_mapped: impl Fn(FileId) -> bool) {
        if let Some(own) = self.own.get_mut(&slot) {
            let links = own.take_unmapped(is_mapped);
            self.close(links);
        }
    }

    /// Attaches to an allocator in all processes that map its file, unless the file has its links
    /// already.
    pub fn attach_shared(
        &mut self,
        kernel: &mut Kernel,
        allocator: &Allocator,
    ) -> anyhow::Result<()> {
        self.shared.attach(kernel, allocator, &self.settings, &mut self.closing)
    }

    /// Attaches to a file that samples by itself, in all processes that map the file.
    pub fn attach_shared_sampler(
        &mut self,
        kernel: &mut Kernel,
        sampler: &SelfSampler,
    ) -> anyhow::Result<()> {
        self.shared.attach_sampler(kernel, sampler, &self.settings, &mut self.closing)
    }

    /// Removes functions that are patched in a process from the links of their file. Returns
    /// whether any of them was probed. After an error, the file has no links.
    pub fn leave_out(&mut self, kernel: &mut Kernel, patched: &Patched) -> anyhow::Result<bool> {
        let settings = &self.settings;
        self.shared.leave_out(patched, |allocator, old| {
            reattach(kernel, allocator, Owner::All, settings, old)
        })
    }

    /// Detaches the links that processes share in `files`.
    pub fn detach_shared(&mut self, files: &[FileId]) {
        let links = self.shared.remove(files);
        self.close(links);
    }

    /// Detaches the links that processes share in all files except `kept`.
    pub fn detach_others_than(&mut self, kept: &FxHashSet<FileId>) {
        self.detach_shared(&self.shared.others_than(kept));
    }

    /// Detaches all links.
    pub fn detach_all(&mut self) {
        let own = std::mem::take(&mut self.own);
        for mut own in own.into_values() {
            self.close(own.take());
        }
        let shared = self.shared.take();
        self.close(shared);
    }

    /// Closes links that are not in the table.
    pub fn close(&mut self, links: Vec<Link>) {
        self.closing.begin_close(links, &Arc::default());
    }

    /// Forgets links that are closed by now.
    pub fn forget_closed(&mut self) {
        self.closing.forget_closed();
    }

    /// Waits until all links whose closing has begun are closed.
    pub fn wait_for_closing(&mut self) {
        self.closing.wait();
    }
}
