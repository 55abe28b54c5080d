//! The processes in kernel slots. Each has one record, and this table alone holds these records.
//!
//! The profile, which outlives a process, is in the store (`Ingest::processes`) under
//! [`ProfiledProcess::id`].

use super::attach::Attached;
use crate::inspect::allocator::Allocator;
use crate::pipeline::library::library_settings::Library;
use crate::pipeline::records::python::Interpreter;
use crate::pipeline::windows::Cycle;
use crate::store::{ProcessId, Processes};
use crate::unwind::Image;
use rustc_hash::FxHashMap;
use sampler_common::share::Holder;

/// A process in a kernel slot.
pub(in crate::pipeline) struct ProfiledProcess {
    /// The process's record in the store.
    pub(in crate::pipeline) id: ProcessId,
    pub(in crate::pipeline) pid: u32,
    /// First program image of the process in this slot.
    pub(in crate::pipeline) first_generation: u32,
    /// Newest known program image.
    pub(in crate::pipeline) generation: u32,
    /// The unwinder's view of the newest image. After an `execve` it is made at the first sample,
    /// when the libraries are mapped.
    pub(in crate::pipeline) image: Option<Image>,
    /// The unwinder's view of a replaced image, with its generation: for records that are read
    /// late.
    pub(in crate::pipeline) earlier: Option<(u32, Image)>,
    pub(in crate::pipeline) allocators: Vec<Allocator>,
    /// Our own library in the process.
    pub(in crate::pipeline) library: Option<Library>,
    /// What inspections have found; `None` until the first inspection of a newly appeared process.
    pub(in crate::pipeline) attached: Option<Attached>,
    /// The process's windows, with `--windows` and an allocator.
    pub(in crate::pipeline) cycle: Option<Cycle>,
    /// The Python interpreter of the newest image that was searched for one.
    pub(in crate::pipeline) interpreter: Option<Interpreter>,
    /// The newest image that has sent samples that it took by itself.
    sampled_itself: Option<u32>,
}

impl ProfiledProcess {
    /// A process whose current image has this generation.
    pub(in crate::pipeline) fn new(id: ProcessId, pid: u32, generation: u32) -> ProfiledProcess {
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

    /// The process as the holder of modules.
    pub(in crate::pipeline) fn holder(&self, processes: &Processes) -> Holder<u32> {
        Holder { user: processes.get(self.id).user, process: self.pid }
    }

    /// Whether the process has replaced its program since it took its slot.
    pub(in crate::pipeline) fn has_exec(&self) -> bool {
        self.generation != self.first_generation
    }

    /// Records a sample that the image took by itself. Returns whether it is the image's first.
    pub(in crate::pipeline) fn samples_itself(&mut self) -> bool {
        self.sampled_itself.replace(self.generation) != Some(self.generation)
    }
}

/// The processes, by slot.
#[derive(Default)]
pub(in crate::pipeline) struct ProcessTable {
    by_slot: FxHashMap<u32, Box<ProfiledProcess>>,
}

impl ProcessTable {
    pub(in crate::pipeline) fn contains(&self, slot: u32) -> bool {
        self.by_slot.contains_key(&slot)
    }

    pub(in crate::pipeline) fn get(&self, slot: u32) -> Option<&ProfiledProcess> {
        self.by_slot.get(&slot).map(Box::as_ref)
    }

    pub(in crate::pipeline) fn get_mut(&mut self, slot: u32) -> Option<&mut ProfiledProcess> {
        self.by_slot.get_mut(&slot).map(Box::as_mut)
    }

    /// All processes, with their slots.
    pub(in crate::pipeline) fn iter(&self) -> impl Iterator<Item = (u32, &ProfiledProcess)> {
        self.by_slot.iter().map(|(slot, process)| (*slot, process.as_ref()))
    }

    pub(in crate::pipeline) fn values(&self) -> impl Iterator<Item = &ProfiledProcess> {
        self.by_slot.values().map(Box::as_ref)
    }

    /// Slots of all processes.
    pub(in crate::pipeline) fn slots(&self) -> Vec<u32> {
        self.by_slot.keys().copied().collect()
    }

    pub(in crate::pipeline) fn insert(&mut self, slot: u32, process: ProfiledProcess) {
        self.by_slot.insert(slot, Box::new(process));
    }

    /// Takes a process out of the table while one of its records is read.
    pub(in crate::pipeline) fn take(&mut self, slot: u32) -> Option<Box<ProfiledProcess>> {
        self.by_slot.remove(&slot)
    }

    /// Puts a process back that [`ProcessTable::take`] has taken out.
    pub(in crate::pipeline) fn put_back(&mut self, slot: u32, process: Box<ProfiledProcess>) {
        self.by_slot.insert(slot, process);
    }

    /// The record in the store of the process in a slot.
    pub(in crate::pipeline) fn id_of(&self, slot: u32) -> Option<ProcessId> {
        self.get(slot).map(|process| process.id)
    }

    /// What inspections have found in the process in a slot.
    pub(in crate::pipeline) fn attached(&self, slot: u32) -> Option<&Attached> {
        self.get(slot)?.attached.as_ref()
    }

    pub(in crate::pipeline) fn attached_mut(&mut self, slot: u32) -> Option<&mut Attached> {
        self.get_mut(slot)?.attached.as_mut()
    }

    /// Whether the process in a slot has been inspected.
    pub(super) fn is_attached(&self, slot: u32) -> bool {
        self.attached(slot).is_some()
    }

    /// Inspected processes, with their slots and findings.
    pub(in crate::pipeline) fn all_attached(
        &self,
    ) -> impl Iterator<Item = (u32, &ProfiledProcess, &Attached)> {
        self.iter().filter_map(|(slot, process)| Some((slot, process, process.attached.as_ref()?)))
    }

    /// As [`ProcessTable::all_attached`], mutable, with the pid instead of the slot.
    pub(super) fn all_attached_mut(&mut self) -> impl Iterator<Item = (u32, &mut Attached)> {
        let all = self.by_slot.values_mut();
        all.filter_map(|process| Some((process.pid, process.attached.as_mut()?)))
    }

    /// Slots of inspected processes.
    pub(in crate::pipeline) fn attached_slots(&self) -> Vec<u32> {
        self.all_attached().map(|(slot, ..)| slot).collect()
    }

    /// The slot of an inspected process.
    pub(in crate::pipeline) fn attached_slot(&self, pid: u32) -> Option<u32> {
        self.all_attached().find(|(_, process, _)| process.pid == pid).map(|(slot, ..)| slot)
    }

    /// The windows of the process in a slot.
    pub(in crate::pipeline) fn cycle(&self, slot: u32) -> Option<&Cycle> {
        self.get(slot)?.cycle.as_ref()
    }

    pub(in crate::pipeline) fn cycle_mut(&mut self, slot: u32) -> Option<&mut Cycle> {
        self.get_mut(slot)?.cycle.as_mut()
    }
}
