//! Processes that are or were profiled. An exited process is kept, so that its profile is still
//! served.
//!
//! Bounds: the kernel's slots limit the number of running processes. The last [`MAX_EXITED`] exited
//! processes are kept one by one. Older ones are folded into one record for each program (the
//! module `fold`).

use super::epochs::Rates;
use super::fold::{FoldKey, Groups, Moves, Pids};
use super::{Epochs, SamplingRecord, SizeCell, Spending};
use sampler_common::counters::Outcome;
use sampler_common::counting::Counted;
use sampler_common::estimate::{RowMoments, Unseen};
use sampler_common::limits::CLASSES;
use sampler_common::note::BlindSpot;
use sampler_common::profile::Exact;
use sampler_common::share::{Holder, UNKNOWN_USER};
use sampler_common::source::{SampleSource, SampleSources};
use sampler_common::units::grouped;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum number of exited processes with a record of their own. The oldest beyond that number are
/// folded.
pub const MAX_EXITED: usize = 2048;
/// Number of processes that are folded at a time. Folding searches every table for their entries,
/// so it is done in batches.
const FOLDED_AT_ONCE: usize = 512;

/// A process in [`Processes`]. The id is not a pid, because a pid may be used again. The id of a
/// folded process is reused, too.
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
    /// The sums over all size classes.
    pub fn sum(&self) -> Exact {
        Exact { alloc_objects: self.objects.iter().sum(), alloc_space: self.bytes.iter().sum() }
    }

    /// Adds the totals of another process.
    pub fn add(&mut self, other: &ClassTotals) {
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from);
        self.objects.iter_mut().zip(other.objects).for_each(|(to, from)| *to += from);
    }
}

/// Moments of samples whose record was lost, by size.
pub type LostMoments = Vec<(SizeCell, RowMoments)>;

/// The control group, container, service and start time of a process, read while the process existed. Fields
/// that could not be read are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Path of the process's control group.
    pub cgroup: String,
    /// Id (64 hex digits) or name of the process's container, if one is recognized.
    pub container: String,
    /// The name of the process's service in telemetry, if it was given one.
    pub service: String,
    /// Start time of the process.
    pub started: Option<SystemTime>,
}

/// A process, or exited processes that were folded into one record.
#[derive(Clone, Debug)]
pub struct ProcessRecord {
    /// Process id; 0 for folded processes.
    pub pid: u32,
    /// Id of the real user ([`UNKNOWN_USER`] if it could not be read).
    pub user: u32,
    /// Command name.
    pub comm: String,
    /// Path of the executable.
    pub exe: String,
    /// Time of the attach.
    pub attached: SystemTime,
    /// Time of the exit.
    pub exited: Option<SystemTime>,
    /// Number of program images seen.
    pub images: u32,
    /// The requested sampling and the sampling in force. Most processes share one record.
    pub sampling: Arc<SamplingRecord>,
    /// Exact totals from the kernel's slot at exit; `None` if they could not be read.
    pub final_totals: Option<Box<ClassTotals>>,
    /// Value of the approximate counter of the process's frees
    /// ([`sampler_common::wire::HITS_SWITCH`]) at exit.
    pub final_free_calls: Counted,
    /// Lost samples, read at exit.
    pub final_lost: LostMoments,
    /// Allocators found.
    pub allocators: Vec<String>,
    /// What samplerd cannot see in the process.
    pub blind_spots: Vec<BlindSpot>,
    /// Control group, container and start time.
    pub origin: Origin,
    /// Whether some of the process's allocations are or were unseen.
    pub has_unseen_allocations: bool,
    /// Whether the process was excluded at its first check. An excluded process is in no profile
    /// and no list.
    pub excluded: bool,
    /// Whether the process is not profiled because probes could harm it. `blind_spots` has the
    /// reason.
    pub refused: bool,
    /// Number of processes that were folded into this record; 0: the record is of one process.
    pub exited_count: u64,
    /// Bounds that the process had hit at exit, each with the number of times.
    pub final_bounds: Vec<(Outcome, u64)>,
    /// The allocator whose malloc the process uses; empty if that is not known.
    pub in_force: String,
    /// Counts for the cost of profiling the process.
    pub spending: Spending,
    /// Anonymous resident memory at the first check of the program, bytes; `None` if it could not
    /// be read.
    pub anonymous_bytes: Option<u64>,
    /// Allocations at each rate; `None` if the rate never changed.
    pub epochs: Option<Box<Epochs>>,
    /// Sources of the process's samples since attach. See [`ProcessRecord::sources`].
    pub sources: SampleSources,
    /// Blocks that the process held when its sampler was removed.
    pub orphaned: Option<Orphaned>,
}

/// Blocks that a process held when samplerd could not follow them any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orphaned {
    /// Time since which blocks could not be followed, at the earliest.
    pub since: SystemTime,
    /// Moments of the held blocks.
    pub moments: RowMoments,
}

impl Orphaned {
    /// No blocks yet.
    pub fn new(since: SystemTime) -> Orphaned {
        Orphaned { since, moments: RowMoments::default() }
    }
}

impl ProcessRecord {
    /// A process that is attached now, with no other information yet.
    pub fn new(pid: u32, sampling: Arc<SamplingRecord>) -> ProcessRecord {
        ProcessRecord {
            pid,
            user: UNKNOWN_USER,
            comm: String::new(),
            exe: String::new(),
            attached: SystemTime::now(),
            exited: None,
            images: 1,
            sampling,
            final_totals: None,
            final_free_calls: Counted::default(),
            final_lost: Vec::new(),
            allocators: Vec::new(),
            blind_spots: Vec::new(),
            origin: Origin::default(),
            has_unseen_allocations: false,
            excluded: false,
            refused: false,
            exited_count: 0,
            final_bounds: Vec::new(),
            in_force: String::new(),
            spending: Spending::default(),
            anonymous_bytes: None,
            epochs: None,
            sources: SampleSources::NONE,
            orphaned: None,
        }
    }

    /// Returns the process's epochs, and makes them if there are none. Allocations before then
    /// belong to the rates in force so far.
    pub fn epochs(&mut self) -> &mut Epochs {
        let rates = self.sampling.unseen.map(Unseen::from);
        self.epochs_from(&rates)
    }

    /// [`ProcessRecord::epochs`], where allocations so far were sampled at `rates`.
    pub fn epochs_from(&mut self, rates: &Rates) -> &mut Epochs {
        self.epochs.get_or_insert_with(|| Box::new(Epochs::new(rates)))
    }

    /// The sources of the process's samples. If the process was gone before its first check, its
    /// sampler is unknown. Its samples then count as `otel_memory`, the contract that all samplers
    /// keep.
    pub fn sources(&self) -> SampleSources {
        let mut sources = self.sources;
        if sources.is_empty() && self.sampling.own_interval_bytes > 0.0 {
            sources.insert(SampleSource::OtelMemory);
        }
        sources
    }

    /// The label for users: `pid 17`, or `make × 3,120 exited`.
    pub fn label(&self) -> String {
        match self.exited_count {
            0 => format!("pid {}", self.pid),
            exited_count => format!("{} × {} exited", self.comm, grouped(exited_count)),
        }
    }
}

/// An entry of the table.
struct Entry {
    record: ProcessRecord,
    /// Whether the process was folded: its number will be reused.
    is_gone: bool,
}

/// The table of processes.
#[derive(Default)]
pub struct Processes {
    records: Vec<Entry>,
    /// Numbers that can be reused.
    vacant: Vec<u32>,
    /// Exited processes with a record of their own, the oldest first.
    exited: VecDeque<ProcessId>,
    groups: Groups,
    /// Pids of folded processes.
    folded: Pids,
    /// Number of folded processes.
    folded_processes: u64,
}

impl Processes {
    /// Adds a process and returns its id.
    pub fn insert(&mut self, record: ProcessRecord) -> ProcessId {
        let entry = Entry { record, is_gone: false };
        if let Some(number) = self.vacant.pop() {
            self.records[number as usize] = entry;
            return ProcessId(number);
        }
        self.records.push(entry);
        ProcessId(self.records.len() as u32 - 1)
    }

    /// Returns the record of a process that has not been folded. (No table has ids of folded
    /// processes.)
    pub fn get(&self, id: ProcessId) -> &ProcessRecord {
        &self.records[id.0 as usize].record
    }

    /// Mutable version of [`Processes::get`].
    pub fn get_mut(&mut self, id: ProcessId) -> &mut ProcessRecord {
        &mut self.records[id.0 as usize].record
    }

    /// A process as the holder of entries in shared tables. The id of no process has no known user.
    pub fn holder(&self, process: ProcessId) -> Holder<ProcessId> {
        let entry = self.records.get(process.0 as usize);
        Holder { user: entry.map_or(UNKNOWN_USER, |entry| entry.record.user), process }
    }

    /// Removes and returns the record of a process. Its number can be reused when all its entries
    /// in other tables have moved.
    fn take(&mut self, id: ProcessId) -> ProcessRecord {
        let entry = &mut self.records[id.0 as usize];
        entry.is_gone = true;
        let nobody = ProcessRecord::new(0, Arc::clone(&entry.record.sampling));
        std::mem::replace(&mut entry.record, nobody)
    }

    /// All processes with a record of their own, and all records of folded processes.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, &ProcessRecord)> {
        let records = (0..).zip(&self.records);
        let there = records.filter(|(_, entry)| !entry.is_gone);
        there.map(|(id, entry)| (ProcessId(id), &entry.record))
    }

    /// Marks a process as exited. Its record does not change any more.
    pub fn exit(&mut self, id: ProcessId) {
        self.exited.push_back(id);
    }

    /// Folds the oldest exited processes if there are too many. The caller must apply the returned
    /// moves to the entries of these processes in other tables.
    #[must_use]
    pub fn fold(&mut self) -> Moves {
        self.fold_beyond(MAX_EXITED, FOLDED_AT_ONCE)
    }

    /// [`Processes::fold`] if at least `at_once` more than `most` have exited.
    pub(super) fn fold_beyond(&mut self, most: usize, at_once: usize) -> Moves {
        let mut moves = Moves::default();
        if self.exited.len() < most + at_once {
            return moves;
        }
        for id in self.exited.drain(..at_once).collect::<Vec<_>>() {
            let record = self.take(id);
            self.folded.insert(record.pid);
            self.folded_processes += 1;
            let group = self.absorb(record, &mut moves);
            moves.enter(id, group);
        }
        // The numbers become free only after all processes have moved. Until then no number may be
        // reused.
        self.vacant.extend(moves.from().map(|id| id.0));
        moves
    }

    /// Adds a record to the folded record of its program, which is made if it does not exist.
    fn absorb(&mut self, record: ProcessRecord, moves: &mut Moves) -> ProcessId {
        let key = FoldKey::of(&record);
        if let Some(group) = self.groups.touch(&key) {
            self.get_mut(group).absorb(record);
            return group;
        }
        if let Some((oldest, others)) = self.groups.make_room() {
            // Too many programs: the program without exits for the longest time loses its name.
            let record = self.take(oldest);
            let others = match self.groups.touch(&others) {
                Some(group) => group,
                None => {
                    let group = self.insert(record.nameless());
                    self.groups.enter(others, group);
                    group
                }
            };
            self.get_mut(others).absorb(record);
            moves.enter(oldest, others);
        }
        let group = self.insert(record.nobody());
        self.get_mut(group).absorb(record);
        self.groups.enter(key, group);
        group
    }

    /// Whether a process with this pid was folded.
    pub fn was_folded(&self, pid: u32) -> bool {
        self.folded.has(pid)
    }

    /// Numbers of exited processes with a record of their own, of records of folded processes, and
    /// of folded processes.
    pub fn usage(&self) -> (usize, usize, u64) {
        (self.exited.len(), self.groups.len(), self.folded_processes)
    }
}
