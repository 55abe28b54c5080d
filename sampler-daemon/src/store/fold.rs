//! Exited processes folded into one record for each program: `make × 3,120 exited`.
//!
//! Plainly: everything that is kept of a process is a sum (exact totals, moments, life tables, the samples of its peak), so that the
//! sum over many of them is kept in the room of one, and every total stays what it was. What is lost is which of them it was.
//! The peak of a folded record is the sum of each one's own peak, as in a profile of them all.
//!
//! Bound: [`MAX_GROUPS`] programs; beyond it the one that was quiet longest is added to those without a name.

use super::process::{Origin, Orphaned, ProcessRecord};
use super::{Epochs, ProcessId, SizeCell, Spending, StackId};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::estimate::{RowMoments, Unseen};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Programs with folded processes at most.
pub const MAX_GROUPS: usize = 1024;
/// Allocators and blind spots that a folded record names at most.
const MAX_NAMES: usize = 16;
/// Stands for the command of programs without a name of their own any more.
const OTHERS: &str = "[others]";

/// What folded processes have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoldKey {
    comm: String,
    exe: String,
    cgroup: String,
    container: String,
    /// Whether they are in no profile and no list.
    excluded: bool,
    /// Whether their exact totals are known: a sum with an unknown part would be unknown.
    is_exact: bool,
}

impl FoldKey {
    /// Of a process.
    pub fn of(record: &ProcessRecord) -> FoldKey {
        let is_exact = record.final_totals.is_some();
        FoldKey {
            comm: record.comm.clone(),
            exe: record.exe.clone(),
            cgroup: record.origin.cgroup.clone(),
            container: record.origin.container.clone(),
            excluded: record.excluded,
            is_exact,
        }
    }

    fn others(&self) -> FoldKey {
        FoldKey {
            comm: OTHERS.to_owned(),
            exe: String::new(),
            cgroup: String::new(),
            container: String::new(),
            excluded: self.excluded,
            is_exact: self.is_exact,
        }
    }
}

/// The programs with folded processes.
pub(super) struct Groups {
    /// Each with when it was last added to.
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
    /// The record of a program, which is added to now.
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

    /// Where there are too many: takes the one out that was quiet longest, with the key of those without a name.
    pub(super) fn make_room(&mut self) -> Option<(ProcessId, FoldKey)> {
        // Of those without a name there are four: with and without exact totals, excluded or not.
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
    /// A record into which processes of the same program can be folded; it has none yet.
    pub(super) fn nobody(&self) -> ProcessRecord {
        ProcessRecord {
            pid: 0,
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

    /// The same of any program.
    pub(super) fn nameless(&self) -> ProcessRecord {
        let (comm, exe) = (OTHERS.to_owned(), String::new());
        ProcessRecord { comm, exe, origin: Origin::default(), ..self.nobody() }
    }

    /// Adds an exited process, or others that were folded.
    pub(super) fn absorb(&mut self, other: ProcessRecord) {
        self.folded += other.folded.max(1);
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
        join(&mut self.blind, other.blind);
        for (outcome, count) in other.final_bounds {
            match self.final_bounds.iter_mut().find(|(of, _)| *of == outcome) {
                Some((_, sum)) => *sum += count,
                None => self.final_bounds.push((outcome, count)),
            }
        }
    }
}

impl ProcessRecord {
    /// Adds what an exited process allocated at each rate; before anything else of it is added.
    fn absorb_epochs(&mut self, other: &ProcessRecord) {
        let alike = self.sampling.unseen == other.sampling.unseen;
        if alike && self.epochs.is_none() && other.epochs.is_none() {
            return;
        }
        let settled = |of: &ProcessRecord| {
            let rates = of.sampling.unseen.map(Unseen::from);
            let mut epochs = of.epochs.as_deref().cloned().unwrap_or_else(|| Epochs::new(&rates));
            if let Some(totals) = &of.final_totals {
                epochs.settle(totals);
            }
            epochs
        };
        let mut sum = settled(self);
        sum.absorb(&settled(other));
        self.epochs = Some(Box::new(sum));
    }
}

/// Adds the names that are not there.
fn join<T: PartialEq>(names: &mut Vec<T>, others: Vec<T>) {
    for name in others {
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Which process is now part of which, and which stacks of a process are given up.
#[derive(Debug, Default)]
pub struct Moves {
    processes: FxHashMap<ProcessId, ProcessId>,
    /// Of processes that give stacks up: those that they keep.
    kept: FxHashMap<ProcessId, FxHashSet<StackId>>,
}

impl Moves {
    pub(super) fn enter(&mut self, from: ProcessId, to: ProcessId) {
        // What had moved there moves on.
        self.processes.values_mut().filter(|of| **of == from).for_each(|of| *of = to);
        self.processes.insert(from, to);
    }

    /// A process gives all stacks up but these.
    pub(super) fn keep(&mut self, process: ProcessId, stacks: FxHashSet<StackId>) {
        self.kept.insert(process, stacks);
    }

    pub(super) fn from(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.keys().copied()
    }

    /// Where a process is now, if it has moved.
    pub fn get(&self, id: ProcessId) -> Option<ProcessId> {
        self.processes.get(&id).copied()
    }

    /// Where what a process had of a stack is now, if it has moved.
    pub fn stack(&self, process: ProcessId, stack: StackId) -> Option<(ProcessId, StackId)> {
        if let Some(into) = self.get(process) {
            return Some((into, stack));
        }
        let kept = self.kept.get(&process)?;
        let stays = kept.contains(&stack) || [StackId::LOST, StackId::TABLE_FULL].contains(&stack);
        (!stays).then_some((process, StackId::TABLE_FULL))
    }

    /// Whether nothing has moved.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.kept.is_empty()
    }
}

/// A set of pids: half a megabyte for all that there can be.
#[derive(Debug, Default)]
pub(super) struct Pids(Vec<u64>);

/// No pid of Linux reaches it (PID_MAX_LIMIT).
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
