//! Sampled blocks that were freed in a slot of time, by stack and by the slot of their allocation.
//! These blocks were held at the slot's beginning.
//!
//! A block that was allocated and freed in one slot is left out: no window begins between these
//! times.

use crate::store::fold::give_back;
use crate::store::{Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Turnover;

/// A process, a stack, and the start of the slot in which the blocks were allocated.
pub(super) type Key = (ProcessId, StackId, u64);

/// Blocks that were freed in a slot.
#[derive(Default)]
pub(super) struct Departed {
    cells: FxHashMap<Key, Turnover>,
    /// Whether some of the cells were discarded.
    is_cut: bool,
}

impl Departed {
    /// Adds blocks. Returns whether the key is new.
    pub(super) fn add(&mut self, key: Key, blocks: &Turnover) -> bool {
        let before = self.cells.len();
        self.cells.entry(key).or_default().add(blocks);
        self.cells.len() > before
    }

    /// Appends the cells of the next slot.
    pub(super) fn append(&mut self, next: Departed) {
        self.is_cut |= next.is_cut;
        for (key, blocks) in &next.cells {
            self.add(*key, blocks);
        }
    }

    /// Removes blocks that were allocated at `start_ns` or later. The other keys get the present
    /// start of the slot of their allocation.
    pub(super) fn coarsen(&mut self, start_ns: u64, slot_of: impl Fn(u64) -> u64) {
        for ((process, stack, arrived_ns), blocks) in std::mem::take(&mut self.cells) {
            if arrived_ns < start_ns {
                self.add((process, stack, slot_of(arrived_ns)), &blocks);
            }
        }
    }

    /// Applies moves. Returns by how many the number of cells decreases.
    pub(super) fn fold(&mut self, moves: &Moves) -> usize {
        let before = self.cells.len();
        let moved = |process: ProcessId, stack: StackId| moves.stack(process, stack);
        let cells =
            self.cells.extract_if(|(process, stack, _), _| moved(*process, *stack).is_some());
        for ((process, stack, arrived_ns), blocks) in cells.collect::<Vec<_>>() {
            let Some((process, stack)) = moved(process, stack) else { continue };
            self.add((process, stack, arrived_ns), &blocks);
        }
        give_back(&mut self.cells);
        before - self.cells.len()
    }

    /// Discards all cells. Returns their number.
    pub(super) fn cut(&mut self) -> usize {
        self.is_cut = true;
        std::mem::take(&mut self.cells).len()
    }

    /// Whether some of the cells were discarded.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Stacks of all cells; a stack may be repeated.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.cells.keys().map(|(process, stack, _)| (*process, *stack))
    }

    /// All cells.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Turnover)> {
        self.cells.iter()
    }
}
