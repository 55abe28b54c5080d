//! The interlocked counter.

use super::{Counter, Word, Worker};
use crate::sampling::Random;

/// One atomic addition for every event: exact, and as slow as the line's way from the CPU that
/// counted last.
#[derive(Debug, Default)]
pub struct Interlocked<W>(
    /// The count.
    pub W,
);

impl<W: Word> Counter for Interlocked<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, _: &mut Worker<R>) {
        self.0.add(amount);
    }

    fn value(&self) -> u64 {
        self.0.load()
    }
}
