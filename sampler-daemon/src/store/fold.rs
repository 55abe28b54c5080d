//! Exited processes folded into one record for each program and user: `make × 3,120 exited`.
//!
//! Plainly: all data of a process are sums (exact totals, moments, life tables, the samples of its
//! peak). So the sum over many processes takes the room of one, and every total stays the same.
//! Only the distinction between the processes is lost. The peak of a folded record is the sum of
//! the processes' own peaks, as in a profile of all of them.
//!
//! Bound: [`MAX_GROUPS`] programs. Beyond it, the program without exits for the longest time is
//! added to the nameless programs.

use super::process::{Origin, Orphaned, ProcessRecord};
use super::{Epochs, ProcessId, SizeCell, Spending, StackId};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::estimate::{RowMoments, Unseen};
use sampler_common::share::UNKNOWN_USER;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

/// Maximum number of programs with folded processes.
pub const MAX_GROUPS: usize = 1024;
/// Maximum number of allocators, and of blind spots, that a folded record names.
const MAX_NAMES: usize = 16;
/// Command of the programs that have lost their name.
const OTHERS: &str = "[others]";

/// The properties that folded processes have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoldKey {
    user: u32,
    comm: String,
    exe: String,
    cgroup: String,
    container: String,
    service: String,
    /// Whether the processes are in no profile and no list.
    excluded: bool,
    /// Whether the exact totals are known. A sum with an unknown part would be unknown.
    is_exact: bool,
}

impl FoldKey {
    /// The key of a process.
    pub fn of(record: &ProcessRecord) -> FoldKey {
        let is_exact = record.final_totals.is_some();
        FoldKey {
            user: record.user,
            comm: record.comm.clone(),
            exe: record.exe.clone(),
            cgroup: record.origin.cgroup.clone(),
            container: record.origin.container.clone(),
            service: record.origin.service.clone(),
            excluded: record.excluded,
            is_exact,
        }
    }

    fn others(&self) -> FoldKey {
        FoldKey {
            user: UNKNOWN_USER,
            comm: OTHERS.to_owned(),
            exe: String::new(),
            cgroup: String::new(),
            container: String::new(),
            service: String::new(),
            excluded: self.excluded,
            is_exact: self.is_exact,
        }
    }
}

/// The programs with folded processes.
pub(super) struct Groups {
    /// The record of each program, with the turn of its last addition.
    groups: FxHashMap<FoldKey, (ProcessId, u64)>,
    turn: u64,
    bound: usize,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { groups: FxHashMap::default(), turn: 0, bound: MAX_GROUPS }
    }
}

impl Groups {
    /// Returns the record of a program, and notes that it is used now.
    pub(super) fn touch(&mut self, key: &FoldKey) -> Option<ProcessId> {
        self.turn += 1;
        let (group, last) = self.groups.get_mut(key)?;
        *last = self.turn;
        Some(*group)
    }

    pub(super) fn enter(&mut self, key: FoldKey, group: ProcessId) {
        self.turn += 1;
        self.groups.insert(key, (group, self.turn));
    }

    /// If there are too many programs, removes the one that was used least recently. Returns its
    /// record, and the key of the nameless programs.
    pub(super) fn make_room(&mut self) -> Option<(ProcessId, FoldKey)> {
        // The nameless programs have four keys: with and without exact totals, excluded or not.
        if self.groups.len() + 4 < self.bound {
            return None;
        }
        let is_named = |key: &FoldKey| key.comm != OTHERS || !key.exe.is_empty();
        let named = self.groups.iter().filter(|(key, _)| is_named(key));
        let (key, _) = named.min_by_key(|(_, (_, last))| *last)?;
        let key = key.clone();
        let (group, _) = self.groups.remove(&key)?;
        Some((group, key.others()))
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }
}

impl ProcessRecord {
    /// A record for folding processes of the same program, with no process yet.
    pub(super) fn nobody(&self) -> ProcessRecord {
        ProcessRecord {
            pid: 0,
            user: self.user,
            comm: self.comm.clone(),
            exe: self.exe.clone(),
            attached: self.attached,
            images: 0,
            final_totals: self.final_totals.as_ref().map(|_| Box::default()),
            origin: Origin { started: None, ..self.origin.clone() },
            excluded: self.excluded,
            spending: Spending::nobody(),
            ..ProcessRecord::new(0, Arc::clone(&self.sampling))
        }
    }

    /// [`ProcessRecord::nobody`] for nameless programs.
    pub(super) fn nameless(&self) -> ProcessRecord {
        let (comm, exe) = (OTHERS.to_owned(), String::new());
        ProcessRecord { user: UNKNOWN_USER, comm, exe, origin: Origin::default(), ..self.nobody() }
    }

    /// Adds an exited process, or a record of folded processes.
    pub(super) fn absorb(&mut self, other: ProcessRecord) {
        self.exited_count += other.exited_count.max(1);
        self.attached = self.attached.min(other.attached);
        self.exited = self.exited.max(other.exited);
        self.images = self.images.saturating_add(other.images);
        self.absorb_epochs(&other);
        if !Arc::ptr_eq(&self.sampling, &other.sampling) {
            Arc::make_mut(&mut self.sampling).absorb(&other.sampling);
        }
        if let (Some(sum), Some(totals)) = (&mut self.final_totals, &other.final_totals) {
            sum.add(totals);
        }
        self.sources.extend(other.sources());
        if let Some(orphaned) = other.orphaned {
            let sum = self.orphaned.get_or_insert_with(|| Orphaned::new(orphaned.since));
            sum.since = sum.since.min(orphaned.since);
            sum.moments.add(&orphaned.moments);
        }
        self.has_unseen_allocations |= other.has_unseen_allocations || other.final_totals.is_none();
        self.final_free_calls.add(&other.final_free_calls);
        self.spending.absorb(&other.spending);
        if !other.final_lost.is_empty() {
            let lost = self.final_lost.drain(..).chain(other.final_lost);
            let mut sums: BTreeMap<SizeCell, RowMoments> = BTreeMap::new();
            lost.for_each(|(cell, moments)| sums.entry(cell).or_default().add(&moments));
            self.final_lost = sums.into_iter().collect();
        }
        join(&mut self.allocators, other.allocators);
        join(&mut self.blind_spots, other.blind_spots);
        for (outcome, count) in other.final_bounds {
            match self.final_bounds.iter_mut().find(|(of, _)| *of == outcome) {
                Some((_, sum)) => *sum += count,
                None => self.final_bounds.push((outcome, count)),
            }
        }
    }
}

impl ProcessRecord {
    /// Adds the allocations of an exited process at each rate. Must run before anything else of the
    /// process is added.
    fn absorb_epochs(&mut self, other: &ProcessRecord) {
        let alike = self.sampling.unseen == other.sampling.unseen;
        if alike && self.epochs.is_none() && other.epochs.is_none() {
            return;
        }
        let finished = |of: &ProcessRecord| {
            let rates = of.sampling.unseen.map(Unseen::from);
            let mut epochs = of.epochs.as_deref().cloned().unwrap_or_else(|| Epochs::new(&rates));
            if let Some(totals) = &of.final_totals {
                epochs.finish(totals);
            }
            epochs
        };
        let mut sum = finished(self);
        sum.absorb(&finished(other));
        self.epochs = Some(Box::new(sum));
    }
}

/// Adds the names that are missing, up to [`MAX_NAMES`].
fn join<T: PartialEq>(names: &mut Vec<T>, others: Vec<T>) {
    for name in others {
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Processes that became part of other records, and stacks that processes discarded.
#[derive(Debug, Default)]
pub struct Moves {
    processes: FxHashMap<ProcessId, ProcessId>,
    /// Stacks to keep, of each process that discards stacks.
    kept: FxHashMap<ProcessId, FxHashSet<StackId>>,
}

impl Moves {
    pub(super) fn enter(&mut self, from: ProcessId, to: ProcessId) {
        // Processes that had moved to `from` move on.
        self.processes.values_mut().filter(|of| **of == from).for_each(|of| *of = to);
        self.processes.insert(from, to);
    }

    /// Discards all stacks of a process but these.
    pub(super) fn keep(&mut self, process: ProcessId, stacks: FxHashSet<StackId>) {
        self.kept.insert(process, stacks);
    }

    pub(super) fn from(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.keys().copied()
    }

    /// The new record of a process, if the process has moved.
    pub fn get(&self, id: ProcessId) -> Option<ProcessId> {
        self.processes.get(&id).copied()
    }

    /// The new process and stack of an entry, if the entry has moved.
    pub fn stack(&self, process: ProcessId, stack: StackId) -> Option<(ProcessId, StackId)> {
        if let Some(into) = self.get(process) {
            return Some((into, stack));
        }
        let kept = self.kept.get(&process)?;
        let stays = kept.contains(&stack) || !stack.has_frames();
        (!stays).then_some((process, StackId::TABLE_FULL))
    }

    /// Whether nothing has moved.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.kept.is_empty()
    }
}

/// Gives back most of a table's memory if most entries are gone. A table keeps the size that it once
/// had, and each of some hundred slots of time has tables of its own.
pub(super) fn give_back<K: Eq + Hash, V>(table: &mut FxHashMap<K, V>) {
    if table.capacity() > 4 * table.len() {
        table.shrink_to(2 * table.len());
    }
}

/// A set of pids: half a megabyte for all possible pids.
#[derive(Debug, Default)]
pub(super) struct Pids(Vec<u64>);

/// All pids of Linux are below this number (PID_MAX_LIMIT).
const PID_END: u32 = 1 << 22;

impl Pids {
    pub(super) fn insert(&mut self, pid: u32) {
        let word = (pid / 64) as usize;
        if pid < PID_END {
            self.0.resize(self.0.len().max(word + 1), 0);
            self.0[word] |= 1 << (pid % 64);
        }
    }

    pub(super) fn has(&self, pid: u32) -> bool {
        self.0.get((pid / 64) as usize).is_some_and(|word| word >> (pid % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests;
