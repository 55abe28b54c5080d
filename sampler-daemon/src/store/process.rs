//! Processes that are or were profiled. Kept after their exit, so that their profile is still served.
//!
//! Bounds: those that run are as many as the kernel has slots; of the exited ones the last [`MAX_EXITED`] are kept one by one, and
//! older ones are folded into one record for each program (the module `fold`).

use super::epochs::Rates;
use super::fold::{FoldKey, Groups, Moves, Pids};
use super::{Epochs, SamplingRecord, SizeCell, Spending};
use sampler_common::counters::Outcome;
use sampler_common::counting::Counted;
use sampler_common::estimate::{RowMoments, Unseen};
use sampler_common::limits::CLASSES;
use sampler_common::note::Blind;
use sampler_common::profile::Exact;
use sampler_common::source::{SampleSource, SampleSources};
use sampler_common::units::grouped;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

/// Exited processes that have a record of their own, at most; the oldest beyond it are folded.
pub const MAX_EXITED: usize = 2048;
/// So many are folded at a time: what belongs to them is looked for in every table.
const FOLDED_AT_ONCE: usize = 512;

/// A process in [`Processes`]: not its pid, which may be used again. That of a folded process is used again, too.
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

    /// Adds those of another process.
    pub fn add(&mut self, other: &ClassTotals) {
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from);
        self.objects.iter_mut().zip(other.objects).for_each(|(to, from)| *to += from);
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

/// A process, or exited ones that were folded into one.
#[derive(Clone, Debug)]
pub struct ProcessRecord {
    /// Process id; 0 of folded ones.
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
    /// How it is sampled: what was asked for, and what is in force. Most processes share one.
    pub sampling: Arc<SamplingRecord>,
    /// Exact totals left by the kernel's slot at exit; `None` if they could not be read.
    pub final_totals: Option<Box<ClassTotals>>,
    /// What the approximate counter of its frees ([`sampler_common::wire::HITS_SWITCH`]) showed at exit.
    pub final_free_calls: Counted,
    /// Lost samples left at exit.
    pub final_lost: LostMoments,
    /// Allocators found.
    pub allocators: Vec<String>,
    /// What cannot be seen in it.
    pub blind: Vec<Blind>,
    /// Where it belongs.
    pub origin: Origin,
    /// Some of its allocations are known to go unseen, now or before.
    pub has_unseen_allocations: bool,
    /// Excluded when it was first looked at: it is in no profile and no list.
    pub excluded: bool,
    /// Not profiled, because probes could harm it; why, is in `blind`.
    pub refused: bool,
    /// Processes that were folded into this record; 0: it is a process of its own.
    pub folded: u64,
    /// Bounds that it had hit at exit, with how often.
    pub final_bounds: Vec<(Outcome, u64)>,
    /// The allocator whose malloc it uses, empty if that is not known.
    pub in_force: String,
    /// Counts for what profiling costs it.
    pub spending: Spending,
    /// Anonymous resident memory when its program was first looked at, bytes; `None` if it could not be read.
    pub anonymous_bytes: Option<u64>,
    /// What it allocated at each rate; `None` if its rate never changed.
    pub epochs: Option<Box<Epochs>>,
    /// Where samples of it come from, since attach. See [`ProcessRecord::sources`].
    pub sources: SampleSources,
    /// Blocks that it held when its sampler was taken out.
    pub orphaned: Option<Orphaned>,
}

/// Blocks that a process held when they could not be followed any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orphaned {
    /// Since when, at the earliest.
    pub since: SystemTime,
    /// What was held.
    pub moments: RowMoments,
}

impl Orphaned {
    /// None yet.
    pub fn new(since: SystemTime) -> Orphaned {
        Orphaned { since, moments: RowMoments::default() }
    }
}

impl ProcessRecord {
    /// A process that is attached now, and of which nothing else is known yet.
    pub fn new(pid: u32, sampling: Arc<SamplingRecord>) -> ProcessRecord {
        ProcessRecord {
            pid,
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
            blind: Vec::new(),
            origin: Origin::default(),
            has_unseen_allocations: false,
            excluded: false,
            refused: false,
            folded: 0,
            final_bounds: Vec::new(),
            in_force: String::new(),
            spending: Spending::default(),
            anonymous_bytes: None,
            epochs: None,
            sources: SampleSources::NONE,
            orphaned: None,
        }
    }

    /// Its epochs; from now on it has some, and what was counted so far belongs to the rates up to now.
    pub fn epochs(&mut self) -> &mut Epochs {
        let rates = self.sampling.unseen.map(Unseen::from);
        self.epochs_from(&rates)
    }

    /// As [`ProcessRecord::epochs`], where what was counted so far was sampled at `rates`.
    pub fn epochs_from(&mut self, rates: &Rates) -> &mut Epochs {
        self.epochs.get_or_insert_with(|| Box::new(Epochs::new(rates)))
    }

    /// Where its samples come from. Of a process that was gone before it was looked at nobody knows which sampler was in it: they came by the
    /// contract that all samplers keep.
    pub fn sources(&self) -> SampleSources {
        let mut sources = self.sources;
        if sources.is_empty() && self.sampling.own_interval_bytes > 0.0 {
            sources.insert(SampleSource::OtelMemory);
        }
        sources
    }

    /// What people call it: `pid 17`, or `make × 3,120 exited`.
    pub fn label(&self) -> String {
        match self.folded {
            0 => format!("pid {}", self.pid),
            folded => format!("{} × {} exited", self.comm, grouped(folded)),
        }
    }
}

/// A place in the table.
struct Entry {
    record: ProcessRecord,
    /// Whether it is folded away: its number is free.
    is_gone: bool,
}

/// The processes.
#[derive(Default)]
pub struct Processes {
    records: Vec<Entry>,
    /// Numbers that are free.
    vacant: Vec<u32>,
    /// The exited ones with a record of their own, the oldest first.
    exited: VecDeque<ProcessId>,
    groups: Groups,
    /// Pids of those that were folded.
    folded: Pids,
    /// How many were.
    folded_processes: u64,
}

impl Processes {
    /// Enters a process.
    pub fn insert(&mut self, record: ProcessRecord) -> ProcessId {
        let entry = Entry { record, is_gone: false };
        if let Some(number) = self.vacant.pop() {
            self.records[number as usize] = entry;
            return ProcessId(number);
        }
        self.records.push(entry);
        ProcessId(self.records.len() as u32 - 1)
    }

    /// A process: one that has not been folded away, and such are in no table.
    pub fn get(&self, id: ProcessId) -> &ProcessRecord {
        &self.records[id.0 as usize].record
    }

    /// As [`Processes::get`], to change.
    pub fn get_mut(&mut self, id: ProcessId) -> &mut ProcessRecord {
        &mut self.records[id.0 as usize].record
    }

    /// Takes a process out; its number is free when everything of it has moved.
    fn take(&mut self, id: ProcessId) -> ProcessRecord {
        let entry = &mut self.records[id.0 as usize];
        entry.is_gone = true;
        let nobody = ProcessRecord::new(0, Arc::clone(&entry.record.sampling));
        std::mem::replace(&mut entry.record, nobody)
    }

    /// All processes, and all records of folded ones.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, &ProcessRecord)> {
        let records = (0..).zip(&self.records);
        let there = records.filter(|(_, entry)| !entry.is_gone);
        there.map(|(id, entry)| (ProcessId(id), &entry.record))
    }

    /// A process has exited; nothing of it changes any more.
    pub fn exit(&mut self, id: ProcessId) {
        self.exited.push_back(id);
    }

    /// Folds the oldest exited processes if there are too many. What is left of them in other tables moves with them.
    #[must_use]
    pub fn fold(&mut self) -> Moves {
        self.fold_beyond(MAX_EXITED, FOLDED_AT_ONCE)
    }

    /// As [`Processes::fold`] where `at_once` more than `most` have exited.
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
        // Not before all have moved: a number must not be taken meanwhile.
        self.vacant.extend(moves.from().map(|id| id.0));
        moves
    }

    /// Adds a record to that of its program, or makes it.
    fn absorb(&mut self, record: ProcessRecord, moves: &mut Moves) -> ProcessId {
        let key = FoldKey::of(&record);
        if let Some(group) = self.groups.touch(&key) {
            self.get_mut(group).absorb(record);
            return group;
        }
        if let Some((oldest, others)) = self.groups.make_room() {
            // Too many programs: the one that was quiet longest loses its name.
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

    /// Records with a process of their own that has exited, records of folded ones, and the processes in these.
    pub fn usage(&self) -> (usize, usize, u64) {
        (self.exited.len(), self.groups.len(), self.folded_processes)
    }
}
