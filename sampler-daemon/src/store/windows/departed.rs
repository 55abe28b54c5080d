//! Sampled blocks that ended in a slot of time, by stack and by the slot that they came in: what was held at its beginning and went.
//!
//! A block that came and went in one slot is left out: nobody asks what was held at a moment in between.

use crate::store::{Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Turnover;

/// A process, a stack, and the beginning of the slot that its blocks came in.
type Key = (ProcessId, StackId, u64);

/// What went in a slot.
#[derive(Default)]
pub(super) struct Departed {
    cells: FxHashMap<Key, Turnover>,
    /// Whether some of it was given up.
    is_cut: bool,
}

impl Departed {
    /// Adds blocks; whether they are the first of their key.
    pub(super) fn add(&mut self, key: Key, blocks: &Turnover) -> bool {
        let before = self.cells.len();
        self.cells.entry(key).or_default().add(blocks);
        self.cells.len() > before
    }

    /// Adds those of the slot that follows.
    pub(super) fn append(&mut self, next: Departed) {
        self.is_cut |= next.is_cut;
        for (key, blocks) in &next.cells {
            self.add(*key, blocks);
        }
    }

    /// Leaves out what came at `start_ns` or later, and gives the rest the beginning of the slot that has its own.
    pub(super) fn coarsen(&mut self, start_ns: u64, slot_of: impl Fn(u64) -> u64) {
        for ((process, stack, came_ns), blocks) in std::mem::take(&mut self.cells) {
            if came_ns < start_ns {
                self.add((process, stack, slot_of(came_ns)), &blocks);
            }
        }
    }

    /// Moves what has moved; how many cells fewer there are.
    pub(super) fn fold(&mut self, moves: &Moves) -> usize {
        let before = self.cells.len();
        let moved = |process: ProcessId, stack: StackId| moves.stack(process, stack);
        let cells =
            self.cells.extract_if(|(process, stack, _), _| moved(*process, *stack).is_some());
        for ((process, stack, came_ns), blocks) in cells.collect::<Vec<_>>() {
            let Some((process, stack)) = moved(process, stack) else { continue };
            self.add((process, stack, came_ns), &blocks);
        }
        before - self.cells.len()
    }

    /// Gives everything up; how many cells that were.
    pub(super) fn cut(&mut self) -> usize {
        self.is_cut = true;
        std::mem::take(&mut self.cells).len()
    }

    /// Whether some of it was given up.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Cells.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Stacks of all cells, each perhaps several times.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.cells.keys().map(|(process, stack, _)| (*process, *stack))
    }

    /// What came before `start_ns`.
    pub(super) fn older_than(
        &self,
        start_ns: u64,
    ) -> impl Iterator<Item = ((ProcessId, StackId), &Turnover)> {
        let cells = self.cells.iter().filter(move |((_, _, came_ns), _)| *came_ns < start_ns);
        cells.map(|((process, stack, _), blocks)| ((*process, *stack), blocks))
    }
}
