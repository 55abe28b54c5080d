//! The samples of sample streams.

use crate::store::{Origin, ProcessIdentity};
use crate::unwind::Module;
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
    /// Probability that the allocation was sampled.
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
    /// Cgroup, container and start of the process.
    pub origin: Origin,
}

impl SampleEvent {
    /// The identity of the sampled process.
    pub fn who(&self) -> ProcessIdentity<'_> {
        ProcessIdentity {
            pid: self.pid,
            comm: &self.comm,
            exe: &self.exe,
            cgroup: &self.origin.cgroup,
            container: &self.origin.container,
        }
    }
}
