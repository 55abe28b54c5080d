//! The processes in kernel slots: one record each, and this table is the only place that holds them.
//!
//! What outlives a process, its profile, is in the store (`Ingest::processes`); [`ProfiledProcess::id`] leads there.

use super::attach::Attached;
use super::library_settings::Library;
use super::python::Interpreter;
use super::windows::Cycle;
use crate::inspect::allocator::Allocator;
use crate::store::ProcessId;
use crate::unwind::Image;
use rustc_hash::FxHashMap;

/// A process in a kernel slot.
pub(super) struct ProfiledProcess {
    /// Its record in the store.
    pub(super) id: ProcessId,
    pub(super) pid: u32,
    /// First program image of this process in the slot.
    pub(super) first_generation: u32,
    /// Newest program image that we know of.
    pub(super) generation: u32,
    /// The unwinder's view of the newest image; after `execve` made at its first sample, when its
    /// libraries are there.
    pub(super) image: Option<Image>,
    /// The unwinder's view of an image that has been replaced, with its generation: for records read late.
    pub(super) earlier: Option<(u32, Image)>,
    pub(super) allocators: Vec<Allocator>,
    /// Our own library in it.
    pub(super) library: Option<Library>,
    /// What looks at it know; `None` until the first look at a process that has come by itself.
    pub(super) attached: Option<Attached>,
    /// Its windows, with `--windows` and an allocator.
    pub(super) cycle: Option<Cycle>,
    /// The Python interpreter of the newest image that was looked at for one.
    pub(super) interpreter: Option<Interpreter>,
    /// The newest image that has sent samples of its own.
    sampled_itself: Option<u32>,
}

impl ProfiledProcess {
    /// Of a process whose current image is of this generation.
    pub(super) fn new(id: ProcessId, pid: u32, generation: u32) -> ProfiledProcess {
        ProfiledProcess {
            id,
            pid,
            first_generation: generation,
            generation,
            image: None,
            earlier: None,
            allocators: Vec::new(),
            library: None,
            attached: None,
            cycle: None,
            interpreter: None,
            sampled_itself: None,
        }
    }

    /// Whether it has replaced its program since it took its slot.
    pub(super) fn has_exec(&self) -> bool {
        self.generation != self.first_generation
    }

    /// It has sent a sample of its own; whether that is the first one of its image.
    pub(super) fn samples_itself(&mut self) -> bool {
        self.sampled_itself.replace(self.generation) != Some(self.generation)
    }
}

/// The processes, by slot.
#[derive(Default)]
pub(super) struct ProcessTable {
    by_slot: FxHashMap<u32, Box<ProfiledProcess>>,
}

impl ProcessTable {
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.by_slot.contains_key(&slot)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&ProfiledProcess> {
        self.by_slot.get(&slot).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut ProfiledProcess> {
        self.by_slot.get_mut(&slot).map(Box::as_mut)
    }

    /// All processes, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &ProfiledProcess)> {
        self.by_slot.iter().map(|(slot, process)| (*slot, process.as_ref()))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ProfiledProcess> {
        self.by_slot.values().map(Box::as_ref)
    }

    /// Slots of all processes.
    pub(super) fn slots(&self) -> Vec<u32> {
        self.by_slot.keys().copied().collect()
    }

    pub(super) fn insert(&mut self, slot: u32, process: ProfiledProcess) {
        self.by_slot.insert(slot, Box::new(process));
    }

    /// Takes a process out while a record of it is read.
    pub(super) fn take(&mut self, slot: u32) -> Option<Box<ProfiledProcess>> {
        self.by_slot.remove(&slot)
    }

    /// Puts back what [`ProcessTable::take`] has taken out.
    pub(super) fn put_back(&mut self, slot: u32, process: Box<ProfiledProcess>) {
        self.by_slot.insert(slot, process);
    }

    /// The record in the store of the process in a slot.
    pub(super) fn id_of(&self, slot: u32) -> Option<ProcessId> {
        self.get(slot).map(|process| process.id)
    }

    /// What looks at the process in a slot know.
    pub(super) fn attached(&self, slot: u32) -> Option<&Attached> {
        self.get(slot)?.attached.as_ref()
    }

    pub(super) fn attached_mut(&mut self, slot: u32) -> Option<&mut Attached> {
        self.get_mut(slot)?.attached.as_mut()
    }

    /// Whether the process in a slot has been looked at.
    pub(super) fn is_attached(&self, slot: u32) -> bool {
        self.attached(slot).is_some()
    }

    /// Processes that have been looked at, with their slots and what looks know.
    pub(super) fn all_attached(&self) -> impl Iterator<Item = (u32, &ProfiledProcess, &Attached)> {
        self.iter().filter_map(|(slot, process)| Some((slot, process, process.attached.as_ref()?)))
    }

    /// The same, to be changed.
    pub(super) fn all_attached_mut(&mut self) -> impl Iterator<Item = (u32, &mut Attached)> {
        let all = self.by_slot.values_mut();
        all.filter_map(|process| Some((process.pid, process.attached.as_mut()?)))
    }

    /// Slots of processes that have been looked at.
    pub(super) fn attached_slots(&self) -> Vec<u32> {
        self.all_attached().map(|(slot, ..)| slot).collect()
    }

    /// The slot of a process that has been looked at.
    pub(super) fn attached_slot(&self, pid: u32) -> Option<u32> {
        self.all_attached().find(|(_, process, _)| process.pid == pid).map(|(slot, ..)| slot)
    }

    /// The windows of the process in a slot.
    pub(super) fn cycle(&self, slot: u32) -> Option<&Cycle> {
        self.get(slot)?.cycle.as_ref()
    }

    pub(super) fn cycle_mut(&mut self, slot: u32) -> Option<&mut Cycle> {
        self.get_mut(slot)?.cycle.as_mut()
    }
}
