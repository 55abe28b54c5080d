//! Counters to compare [`Scalable`](sampler_common::counting::Scalable) with, for tests and for `cargo xtask bench counters`.
#![allow(dead_code, reason = "each binary uses its own part")]

use sampler_common::counting::{Counter, Switch, Word, Worker};
use sampler_common::sampling::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What counters of ours do not need of a word.
pub(crate) trait FullWord: Word {
    /// Stores, whatever is there.
    fn store(&self, value: u64);
    /// Stores `new` in one step if `expected` is there; whether it was.
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

/// A value that shares its cache line with nothing: its neighbours' writers do not slow its own
/// down.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(
    /// The value.
    pub(crate) T,
);

const _: () = assert!(size_of::<Line<u64>>() == 64);

/// Loads, adds and stores, without care for other workers: of several that do so at once, one
/// counts.
///
/// For comparison. An error of unknown size, and only downwards; every event still writes the line
/// that all share.
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

/// One atomic addition for every event: exact, and as slow as the line's way from the CPU that
/// counted last.
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

/// Adds exactly by compare-exchange, and becomes a scalable counter for the events whose
/// exchange fails because another worker was there in between.
///
/// Without contention it is exact. Either way an event adds its amount on average (the exchange
/// exactly, the fall-back by
/// [`Switch::step`]), so that it is unbiased, with a variance of at most the scalable counter's. The price: every event asks for
/// the line, as the interlocked counter does.
#[derive(Debug)]
pub(crate) struct ExchangeFirst<W> {
    /// The count.
    pub(crate) word: W,
    /// Where an event whose exchange failed becomes approximate, and how coarse.
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

/// A word for every worker on a line of its own, summed when it is read: exact and cheap to count,
/// for as many times the room and as many times the work of reading.
///
/// Workers beyond the shards share them. Of no shards at all it counts nothing.
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
