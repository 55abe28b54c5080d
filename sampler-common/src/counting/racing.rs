//! The racing counter.

use super::{Counter, Word, Worker};
use crate::sampling::Random;

/// Loads, adds and stores, without care for other workers: of several that do so at once, one
/// counts.
///
/// For comparison. An error of unknown size, and only downwards; every event still writes the line
/// that all share.
#[derive(Debug, Default)]
pub struct Racing<W>(
    /// The count.
    pub W,
);

impl<W: Word> Counter for Racing<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, _: &mut Worker<R>) {
        self.0.store(self.0.load().wrapping_add(amount));
    }

    fn value(&self) -> u64 {
        self.0.load()
    }
}
