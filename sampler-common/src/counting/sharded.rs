//! The sharded counter.

use super::{Counter, Line, Word, Worker};
use crate::sampling::Random;

/// A word for every worker on a line of its own, summed when it is read: exact and cheap to count,
/// for as many times the room and as many times the work of reading.
///
/// Workers beyond the shards share them. Of no shards at all it counts nothing.
#[derive(Debug)]
pub struct Sharded<'a, W>(
    /// The shards, by the workers' numbers.
    pub &'a [Line<W>],
);

impl<W: Word> Counter for Sharded<'_, W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, worker: &mut Worker<R>) {
        if let Some(shard) = worker.number.checked_rem(self.0.len()) {
            self.0[shard].0.add(amount);
        }
    }

    fn value(&self) -> u64 {
        self.0.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0.load()))
    }
}
