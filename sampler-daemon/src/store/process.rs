//! Processes that are or were profiled. Kept after their exit, so that their profile is still served.

use super::{SamplingRecord, SizeCell};
use sampler_common::estimate::RowMoments;
use sampler_common::limits::CLASSES;
use sampler_common::profile::Exact;
use std::time::SystemTime;

/// Processes remembered at most; a further one is refused.
pub const MAX_PROCESS_RECORDS: usize = 16 * 1024;

/// A process in [`Processes`]: not its pid, which may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// Exact totals of allocations, by size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Requested bytes.
    pub bytes: [u64; CLASSES],
    /// Allocations.
    pub objects: [u64; CLASSES],
}

impl ClassTotals {
    /// Over all size classes.
    pub fn sum(&self) -> Exact {
        Exact { alloc_objects: self.objects.iter().sum(), alloc_space: self.bytes.iter().sum() }
    }
}

/// Samples whose record was lost, by size: moments of allocations.
pub type LostMoments = Vec<(SizeCell, RowMoments)>;

/// Where a process belongs: read while it was there, empty where it could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Path of its control group.
    pub cgroup: String,
    /// Id (64 hex digits) or name of its container, if it is recognized to be in one.
    pub container: String,
    /// When it started.
    pub started: Option<SystemTime>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct ProcessRecord {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Path of the executable.
    pub exe: String,
    /// When it was attached.
    pub attached: SystemTime,
    /// When it exited.
    pub exited: Option<SystemTime>,
    /// Program images seen.
    pub images: u32,
    /// How it is sampled: what was asked for, and what is in force.
    pub sampling: SamplingRecord,
    /// Exact totals left by the kernel's slot at exit; `None` if they could not be read.
    pub final_totals: Option<Box<ClassTotals>>,
    /// What the approximate counter of its frees ([`sampler_common::wire::HITS_SWITCH`]) showed at exit.
    pub final_free_calls: u64,
    /// Lost samples left at exit.
    pub final_lost: LostMoments,
    /// Allocators found.
    pub allocators: Vec<String>,
    /// What cannot be seen in it.
    pub blind: Vec<String>,
    /// Where it belongs.
    pub origin: Origin,
    /// Excluded when it was first looked at: it is in no profile and no list.
    pub excluded: bool,
}

impl ProcessRecord {
    /// A process that is attached now, and of which nothing else is known yet.
    pub fn new(pid: u32, sampling: SamplingRecord) -> ProcessRecord {
        ProcessRecord {
            pid,
            comm: String::new(),
            exe: String::new(),
            attached: SystemTime::now(),
            exited: None,
            images: 1,
            sampling,
            final_totals: None,
            final_free_calls: 0,
            final_lost: Vec::new(),
            allocators: Vec::new(),
            blind: Vec::new(),
            origin: Origin::default(),
            excluded: false,
        }
    }
}

/// The processes.
#[derive(Default)]
pub struct Processes {
    records: Vec<ProcessRecord>,
}

impl Processes {
    /// Enters a process; `None` when the table is full.
    pub fn insert(&mut self, record: ProcessRecord) -> Option<ProcessId> {
        if self.records.len() >= MAX_PROCESS_RECORDS {
            return None;
        }
        self.records.push(record);
        Some(ProcessId(self.records.len() as u32 - 1))
    }

    /// A process.
    pub fn get(&self, id: ProcessId) -> &ProcessRecord {
        &self.records[id.0 as usize]
    }

    /// A process, to change.
    pub fn get_mut(&mut self, id: ProcessId) -> &mut ProcessRecord {
        &mut self.records[id.0 as usize]
    }

    /// All processes.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, &ProcessRecord)> {
        self.records.iter().enumerate().map(|(id, record)| (ProcessId(id as u32), record))
    }

    /// Processes remembered.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
