//! Rows of the allocation profile: moments by process, stack and sizes.

use super::{Moves, ProcessId, SizeCell, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{RowMoments, Sample};

/// Rows held at most; a sample that would make a further one goes to [`StackId::TABLE_FULL`].
pub const MAX_ROWS: usize = 512 * 1024;

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// The sizes.
    pub cell: SizeCell,
}

/// The rows.
#[derive(Default)]
pub struct Rows {
    rows: FxHashMap<RowKey, RowMoments>,
}

impl Rows {
    /// Adds a sampled allocation; false if it had to go to [`StackId::TABLE_FULL`].
    pub fn add(&mut self, process: ProcessId, stack: StackId, sample: &Sample) -> bool {
        let mut moments = RowMoments::default();
        moments.add_allocation(sample);
        self.add_moments(RowKey { process, stack, cell: SizeCell::of(sample.size) }, &moments)
    }

    /// The same with the moments of the sample.
    pub(super) fn add_moments(&mut self, mut key: RowKey, moments: &RowMoments) -> bool {
        let fits = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
        if !fits {
            key.stack = StackId::TABLE_FULL;
        }
        self.rows.entry(key).or_default().add(moments);
        fits
    }

    /// Rows of processes that were folded are those of the others' from now on.
    pub fn fold(&mut self, moves: &Moves) {
        let moved = |key: &RowKey| moves.get(key.process).is_some();
        let moved: Vec<_> = self.rows.extract_if(|key, _| moved(key)).collect();
        for (key, moments) in moved {
            let process = moves.get(key.process).unwrap_or(key.process);
            self.rows.entry(RowKey { process, ..key }).or_default().add(&moments);
        }
    }

    /// All rows, with their allocation moments.
    pub fn iter(&self) -> impl Iterator<Item = (RowKey, &RowMoments)> {
        self.rows.iter().map(|(key, moments)| (*key, moments))
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
