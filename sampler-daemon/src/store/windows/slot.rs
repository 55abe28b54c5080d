//! A slot of time: its sampled allocations and its exact counts.

use super::departed::Departed;
use crate::store::epochs::Band;
use crate::store::fold::give_back;
use crate::store::{Moves, ProcessId, RowKey, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Moments, RowMoments, Trials, Weights};

/// The part of a row's moments that is about allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allocated {
    space: Moments,
    objects: Moments,
    trials: Trials,
    max_unseen: f64,
    /// Σw², bytes.
    squares: f64,
}

impl From<RowMoments> for Allocated {
    /// From one sample, or from several samples of one weight.
    fn from(row: RowMoments) -> Allocated {
        let RowMoments {
            alloc_space,
            alloc_objects,
            alloc_trials,
            inuse_space: _,
            inuse_objects: _,
            inuse_trials: _,
            alloc_max_unseen: max_unseen,
            inuse_max_unseen: _,
        } = row;
        let samples = alloc_space.samples.max(1) as f64;
        let squares = alloc_space.sum * alloc_space.sum / samples;
        let (space, objects, trials) = (alloc_space, alloc_objects, alloc_trials);
        Allocated { space, objects, trials, max_unseen, squares }
    }
}

impl Allocated {
    /// Adds these moments to the moments of a row.
    pub fn add_to(&self, row: &mut RowMoments) {
        row.alloc_space.add(&self.space);
        row.alloc_objects.add(&self.objects);
        row.alloc_trials.add(&self.trials);
        row.alloc_max_unseen = row.alloc_max_unseen.max(self.max_unseen);
    }

    /// The samples' weights, in bytes.
    pub fn weights(&self) -> Weights {
        let Moments { samples, sum, .. } = self.space;
        Weights { samples, sum, squares: self.squares }
    }

    fn add(&mut self, other: &Allocated) {
        self.space.add(&other.space);
        self.objects.add(&other.objects);
        self.trials.add(&other.trials);
        self.max_unseen = self.max_unseen.max(other.max_unseen);
        self.squares += other.squares;
    }
}

/// A process, a size class, and a band of rates.
type ExactKey = (ProcessId, u8, Band);

/// A slot of time.
pub struct Slot {
    /// Start, inclusive.
    pub start_ns: u64,
    /// End, exclusive; `u64::MAX` while the slot is open.
    pub end_ns: u64,
    rows: FxHashMap<RowKey, Allocated>,
    exact: FxHashMap<ExactKey, (u64, u64)>,
    /// Frees of older blocks in this slot. They do not count as entries: they have a bound of their
    /// own.
    pub(super) departed: Departed,
}

impl Slot {
    /// An open slot.
    pub(super) fn new(start_ns: u64) -> Slot {
        Slot {
            start_ns,
            end_ns: u64::MAX,
            rows: FxHashMap::default(),
            exact: FxHashMap::default(),
            departed: Departed::default(),
        }
    }

    pub(super) fn has_row(&self, key: &RowKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Adds moments to a row. Returns whether the row is new.
    pub(super) fn add_row(&mut self, key: RowKey, row: &Allocated) -> bool {
        let before = self.rows.len();
        self.rows.entry(key).or_default().add(row);
        self.rows.len() > before
    }

    /// Adds bytes and objects. Returns whether the key is new.
    pub(super) fn add_exact(&mut self, key: ExactKey, (bytes, objects): (u64, u64)) -> bool {
        let before = self.exact.len();
        let sum = self.exact.entry(key).or_default();
        *sum = (sum.0 + bytes, sum.1 + objects);
        self.exact.len() > before
    }

    /// Appends the next slot. Returns by how many entries the result is smaller than both slots
    /// together.
    pub(super) fn add(&mut self, next: Slot) -> usize {
        let before = self.entries() + next.entries();
        self.end_ns = next.end_ns;
        for (key, row) in &next.rows {
            self.add_row(*key, row);
        }
        for (key, sum) in &next.exact {
            self.add_exact(*key, *sum);
        }
        let fewer = before - self.entries();
        self.departed.append(next.departed);
        fewer
    }

    /// Applies moves. Returns by how many the number of entries decreases.
    pub(super) fn fold(&mut self, moves: &Moves) -> usize {
        let before = self.entries();
        let rows = self.rows.extract_if(|key, _| moves.stack(key.process, key.stack).is_some());
        for (key, row) in rows.collect::<Vec<_>>() {
            let Some((process, stack)) = moves.stack(key.process, key.stack) else { continue };
            self.add_row(RowKey { process, stack, ..key }, &row);
        }
        let exact = self.exact.extract_if(|(process, ..), _| moves.get(*process).is_some());
        for ((process, class, band), sum) in exact.collect::<Vec<_>>() {
            self.add_exact((moves.get(process).unwrap_or(process), class, band), sum);
        }
        give_back(&mut self.rows);
        give_back(&mut self.exact);
        before - self.entries()
    }

    /// Stacks of all rows and of departed blocks; a stack may be repeated.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let rows = self.rows.keys().map(|key| (key.process, key.stack));
        rows.chain(self.departed.stacks())
    }

    pub(super) fn entries(&self) -> usize {
        self.rows.len() + self.exact.len()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (RowKey, &Allocated)> {
        self.rows.iter().map(|(key, row)| (*key, row))
    }

    pub(super) fn exact(&self) -> impl Iterator<Item = (ExactKey, (u64, u64))> {
        self.exact.iter().map(|(key, sum)| (*key, *sum))
    }
}
