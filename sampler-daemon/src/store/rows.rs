//! Rows of the allocation profile: moments by process, stack and sizes.

use super::fold::give_back;
use super::{Moves, ProcessId, SizeCell, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{RowMoments, Sample};
use sampler_common::share::{Holder, Shares};

/// Maximum number of rows. A sample that would give its process more than its share
/// ([`share`](sampler_common::share)) goes to [`StackId::TABLE_FULL`].
pub const MAX_ROWS: usize = 512 * 1024;

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// The size cell.
    pub cell: SizeCell,
}

/// All rows.
#[derive(Default)]
pub struct Rows {
    rows: FxHashMap<RowKey, RowMoments>,
    shares: Shares<ProcessId>,
}

impl Rows {
    /// Adds a sampled allocation. Returns false if it had to go to [`StackId::TABLE_FULL`].
    pub fn add(&mut self, holder: Holder<ProcessId>, stack: StackId, sample: &Sample) -> bool {
        let mut moments = RowMoments::default();
        moments.add_allocation(sample);
        self.add_moments(holder, stack, SizeCell::of(sample.size), &moments)
    }

    /// [`Rows::add`] with the moments of the sample.
    pub(super) fn add_moments(
        &mut self,
        holder: Holder<ProcessId>,
        stack: StackId,
        cell: SizeCell,
        moments: &RowMoments,
    ) -> bool {
        let mut key = RowKey { process: holder.process, stack, cell };
        if let Some(row) = self.rows.get_mut(&key) {
            row.add(moments);
            return true;
        }
        let fits = self.shares.grow(holder, self.rows.len(), MAX_ROWS);
        if !fits {
            key.stack = StackId::TABLE_FULL;
        }
        self.rows.entry(key).or_default().add(moments);
        fits
    }

    /// Applies moves of folded processes and of discarded stacks: rows move to the folded record,
    /// or lose their stack. `holder_of` gives the user of each process and of each folded record.
    pub fn fold(&mut self, moves: &Moves, holder_of: impl Fn(ProcessId) -> Holder<ProcessId>) {
        let moved = self.rows.extract_if(|key, _| moves.stack(key.process, key.stack).is_some());
        for (key, moments) in moved.collect::<Vec<_>>() {
            let Some((process, stack)) = moves.stack(key.process, key.stack) else { continue };
            self.rows.entry(RowKey { process, stack, ..key }).or_default().add(&moments);
        }
        give_back(&mut self.rows);
        self.shares.recount(self.rows.keys().map(|key| holder_of(key.process)));
    }

    /// All rows, with their allocation moments.
    pub fn iter(&self) -> impl Iterator<Item = (RowKey, &RowMoments)> {
        self.rows.iter().map(|(key, moments)| (*key, moments))
    }

    /// Stacks of all rows; a stack may be repeated.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.rows.keys().map(|key| (key.process, key.stack))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Stacks;
    use crate::store::stacks::StackFrame;
    use crate::unwind::{Frame, ModuleId};
    use sampler_common::sampling::Rate;

    #[test]
    fn a_process_of_endless_rows_leaves_room_for_others() {
        let mut stacks = Stacks::default();
        let mut rows = Rows::default();
        let [greedy, honest] = [3, 4].map(|number| Holder { user: 1, process: ProcessId(number) });
        let mut sampled = 0;
        let mut add = |process: Holder<ProcessId>, offset, size| {
            let frame = StackFrame::Code(Frame { module: ModuleId(0), offset });
            let stack = stacks.intern(process, std::iter::once(frame)).unwrap();
            sampled += 1;
            rows.add(process, stack, &Sample::geometric(size, Rate::ALWAYS))
        };
        let sizes = |offset| (3..40).map(move |power| (offset, 1 << power));
        let refused =
            (0..8000).flat_map(sizes).filter(|(offset, size)| !add(greedy, *offset, *size));
        assert!(refused.count() > 8000);
        assert!((9000..9200).flat_map(sizes).all(|(offset, size)| add(honest, offset, size)));
        let counted: u64 = rows.iter().map(|(_, row)| row.alloc_space.samples).sum();
        assert_eq!(counted, sampled);
    }
}
