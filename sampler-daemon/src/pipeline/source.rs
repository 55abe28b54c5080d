//! Where records come from, and what streams of them show.

use super::library::Library;
use crate::store::{Origin, ProcessId, Who};
use crate::target::allocator::Allocator;
use crate::unwind::{Image, Module};
use std::sync::Arc;

/// A sample as `StreamSamples` clients see it.
#[derive(Clone, Debug)]
pub struct SampleEvent {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Requested bytes.
    pub size: u64,
    /// Probability that it was sampled.
    pub inclusion: f64,
    /// Offset of the sampled byte.
    pub offset: u64,
    /// Code frames, leaf first.
    pub frames: Vec<(Arc<Module>, u64)>,
    /// How the stack ended.
    pub unwind: &'static str,
    /// Command name.
    pub comm: String,
    /// Path of the executable.
    pub exe: String,
    /// Where the process belongs.
    pub origin: Origin,
}

impl SampleEvent {
    /// Whose sample it is.
    pub fn who(&self) -> Who<'_> {
        Who {
            pid: self.pid,
            comm: &self.comm,
            exe: &self.exe,
            cgroup: &self.origin.cgroup,
            container: &self.origin.container,
        }
    }
}

/// A process in a kernel slot, as far as records are concerned.
pub(super) struct Source {
    pub(super) process: ProcessId,
    pub(super) pid: u32,
    /// First program image of this process in the slot.
    pub(super) first_generation: u32,
    /// Newest program image that we know of.
    pub(super) generation: u32,
    /// The unwinder's view of the newest image; after `execve` made at its first sample, when its
    /// libraries are there.
    pub(super) image: Option<Image>,
    pub(super) allocators: Vec<Allocator>,
    /// The unwinder's view of an image that has been replaced, with its generation: for records read late.
    pub(super) earlier: Option<(u32, Image)>,
    /// Our own library in it.
    pub(super) library: Option<Library>,
    /// The newest image that has sent samples of its own.
    sampled_itself: Option<u32>,
}

impl Source {
    /// Whether it has replaced its program since it took its slot.
    pub(super) fn has_exec(&self) -> bool {
        self.generation != self.first_generation
    }

    /// Of a process whose current image is of this generation.
    pub(super) fn new(process: ProcessId, pid: u32, generation: u32) -> Source {
        Source {
            process,
            pid,
            first_generation: generation,
            generation,
            image: None,
            allocators: Vec::new(),
            earlier: None,
            library: None,
            sampled_itself: None,
        }
    }

    /// It has sent a sample of its own; whether that is the first one of its image.
    pub(super) fn samples_itself(&mut self) -> bool {
        self.sampled_itself.replace(self.generation) != Some(self.generation)
    }
}
