//! Counters for comparisons with [`Scalable`](sampler_common::counting::Scalable), in tests and in
//! `cargo xtask bench counters`.
#![allow(dead_code, reason = "each binary uses its own part")]

use sampler_common::counting::{Counter, Switch, Word, Worker};
use sampler_common::sampling::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operations of a word that our own counters do not need.
pub(crate) trait FullWord: Word {
    /// Stores `value` unconditionally.
    fn store(&self, value: u64);
    /// Stores `new` atomically if the word has `expected`. Returns whether the word had it.
    fn exchange(&self, expected: u64, new: u64) -> bool;
}

impl FullWord for AtomicU64 {
    fn store(&self, value: u64) {
        self.store(value, Relaxed);
    }

    fn exchange(&self, expected: u64, new: u64) -> bool {
        self.compare_exchange(expected, new, Relaxed, Relaxed).is_ok()
    }
}

/// A value on a cache line of its own. Writers of neighbouring values do not slow its writers down.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(
    /// The value.
    pub(crate) T,
);

const _: () = assert!(size_of::<Line<u64>>() == 64);

/// Loads, adds and stores, ignoring other workers. If several workers do so at once, one counts.
///
/// For comparison. The error has an unknown size, and is only downwards. Every event still writes
/// the line that all workers share.
#[derive(Debug, Default)]
pub(crate) struct Racing<W>(
    /// The count.
    pub(crate) W,
);

impl<W: FullWord> Counter for Racing<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, _: &mut Worker<R>) {
        self.0.store(self.0.load().wrapping_add(amount));
    }

    fn value(&self) -> u64 {
        self.0.load()
    }
}

/// One atomic addition for every event: exact, and as slow as the transfer of the line from the CPU
/// that counted last.
#[derive(Debug, Default)]
pub(crate) struct Interlocked<W>(
    /// The count.
    pub(crate) W,
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

/// Adds exactly by compare-exchange. An event whose exchange fails because of another worker is
/// counted by the scalable rule.
///
/// Without contention the counter is exact. Either way an event adds its amount on average (the
/// exchange exactly, the fall-back by [`Switch::step`]). The counter is therefore unbiased, with a
/// variance of at most the scalable counter's. The price: every event needs the line, as with the
/// interlocked counter.
#[derive(Debug)]
pub(crate) struct ExchangeFirst<W> {
    /// The count.
    pub(crate) word: W,
    /// Count at which an event whose exchange failed becomes approximate, and how coarse its step
    /// is.
    pub(crate) switch: Switch,
}

impl<W: FullWord> Counter for ExchangeFirst<W> {
    #[inline(always)]
    fn add<R: Random>(&self, amount: u64, worker: &mut Worker<R>) {
        let value = self.word.load();
        let quantum = self.switch.quantum(value);
        let amount = Switch::bounded(amount);
        if quantum == 0 || self.word.exchange(value, value.wrapping_add(amount)) {
            return;
        }
        let step = match quantum {
            1 => amount,
            _ => Switch::step(quantum, amount, worker.random.next()),
        };
        if step != 0 {
            self.word.add(step);
        }
    }

    fn value(&self) -> u64 {
        Switch::shown(self.word.load())
    }
}

/// A word for every worker on a line of its own. Reading sums the words. Counting is exact and
/// cheap, but needs as many times the room and the work of reading.
///
/// Workers beyond the shards share them. With no shards nothing is counted.
#[derive(Debug)]
pub(crate) struct Sharded<'a, W>(
    /// The shards, by the workers' numbers.
    pub(crate) &'a [Line<W>],
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
