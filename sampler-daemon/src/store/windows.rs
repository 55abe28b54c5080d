//! Allocations by time: a bounded ring of time slots, in addition to the rows since start.
//!
//! Slots have a length of 1 s for the last two minutes. Older slots are merged:
//!
//! - ten of them to a slot of 10 s, kept for half an hour;
//! - six of these to a slot of a minute, kept for six hours;
//! - ten of these to a slot of ten minutes, kept for a day.
//!
//! A slot has the sampled allocations by their own time, and exact totals as counted between its
//! borders. So a window from border to border has exact totals as well. Windows are rounded outward
//! to borders. Times are `CLOCK_MONOTONIC` in nanoseconds, given by the caller.
//!
//! Bounds: some 830 slots, and [`MAX_ENTRIES`] rows and totals in all of them together. At either
//! bound the oldest slot is dropped, and windows that begin before the next slot are refused. If
//! the newest slot fills everything alone, its further samples go to [`StackId::TABLE_FULL`].
//! The frees of each slot (the module `departures`) have a bound of their own, [`MAX_DEPARTED`].

mod departed;
mod departures;
mod slot;

use super::epochs::Band;
use super::{ClassTotals, Moves, ProcessId, RowKey, SizeCell, StackId};
pub use departures::{CutShort, Departure, MAX_DEPARTED};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{RowMoments, Sample};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::Design;
use sampler_common::wire::{LostCell, LostKey};
pub use slot::{Allocated, Slot};
use std::collections::{BTreeMap, VecDeque};

/// Length of the shortest slot.
pub const SLOT_NS: u64 = 1_000_000_000;

/// A time this close to a border counts as the border. Two readings of a clock by people always
/// differ a little.
const BORDER_NS: u64 = 1_000_000;

/// Maximum number of rows and exact totals in all slots together: about 40 MiB.
pub const MAX_ENTRIES: usize = 256 * 1024;

/// A level: slots of one length.
struct Level {
    /// Minimum number of slots that the level keeps.
    slots: usize,
    /// Number of further slots that are merged to one of the next level; 0 in the last level, whose
    /// oldest slots are dropped.
    merged: usize,
}

const LEVELS: [Level; 4] = [
    Level { slots: 120, merged: 10 },
    Level { slots: 180, merged: 6 },
    Level { slots: 360, merged: 10 },
    Level { slots: 144, merged: 0 },
];

/// The counters of a process at the last observation.
#[derive(Default)]
struct Seen {
    totals: ClassTotals,
    lost: FxHashMap<LostKey, LostCell>,
}

/// Error: a window begins before the oldest slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// Start of the oldest slot.
    pub oldest_ns: u64,
}

/// The slots that a window consists of.
pub struct Window<'a> {
    /// Start, inclusive.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    slots: Vec<&'a Slot>,
}

/// All slots.
pub struct Windows {
    /// Closed slots, the oldest first; levels from the finest to the coarsest.
    levels: [VecDeque<Slot>; LEVELS.len()],
    open: Slot,
    seen: FxHashMap<ProcessId, Seen>,
    entries: usize,
    bound: usize,
    /// Number of cells of departed blocks in all slots, and its maximum.
    departed: usize,
    departed_bound: usize,
    /// Whether a slot was dropped.
    dropped: bool,
}

impl Windows {
    /// Begins with an open slot at `now_ns`.
    pub fn new(now_ns: u64) -> Windows {
        Windows {
            levels: Default::default(),
            open: Slot::new(now_ns),
            seen: FxHashMap::default(),
            entries: 0,
            bound: MAX_ENTRIES,
            departed: 0,
            departed_bound: MAX_DEPARTED,
            dropped: false,
        }
    }

    /// Adds an allocation sampled at `time_ns`. Returns false if the allocation had to go to
    /// [`StackId::TABLE_FULL`].
    pub fn add(
        &mut self,
        process: ProcessId,
        stack: StackId,
        sample: &Sample,
        time_ns: u64,
    ) -> bool {
        let mut moments = RowMoments::default();
        moments.add_allocation(sample);
        let key = RowKey { process, stack, cell: SizeCell::of(sample.size) };
        self.add_moments(key, moments, time_ns)
    }

    /// [`Windows::add`] with the moments of the sample.
    pub(super) fn add_moments(&mut self, key: RowKey, moments: RowMoments, time_ns: u64) -> bool {
        self.add_row(key, &Allocated::from(moments), time_ns)
    }

    fn add_row(&mut self, mut key: RowKey, row: &Allocated, time_ns: u64) -> bool {
        let full = self.entries >= self.bound;
        // A sample older than all slots comes too late and is ignored.
        let Some(slot) = self.slot_at(time_ns) else { return true };
        let mut fits = true;
        if full && !slot.has_row(&key) {
            fits = self.drop_oldest();
            if !fits {
                key.stack = StackId::TABLE_FULL;
            }
        }
        let Some(slot) = self.slot_at(time_ns) else { return true };
        let new = slot.add_row(key, row);
        self.entries += usize::from(new);
        fits
    }

    /// The slot that contains this time.
    fn slot_at(&mut self, time_ns: u64) -> Option<&mut Slot> {
        if time_ns >= self.open.start_ns {
            return Some(&mut self.open);
        }
        for level in &mut self.levels {
            let after = level.partition_point(|slot| slot.start_ns <= time_ns);
            if after > 0 {
                return level.get_mut(after - 1);
            }
        }
        None
    }

    /// Adds the present counters of a process. The difference since the last observation belongs to
    /// the newest slot. A process that has exited is observed a last time, and then
    /// [`Windows::forget`] is called. `bands` are the bands of the rates in force since the last
    /// observation.
    pub fn observe(
        &mut self,
        process: ProcessId,
        totals: &ClassTotals,
        bands: &[Band; CLASSES],
        lost: &[(LostKey, LostCell)],
    ) {
        let seen = self.seen.entry(process).or_default();
        for (class, band) in bands.iter().enumerate() {
            let objects = totals.objects[class].saturating_sub(seen.totals.objects[class]);
            let bytes = totals.bytes[class].saturating_sub(seen.totals.bytes[class]);
            if objects > 0 || bytes > 0 {
                let new = self.open.add_exact((process, class as u8, *band), (bytes, objects));
                self.entries += usize::from(new);
            }
        }
        seen.totals = *totals;
        let mut rows = Vec::new();
        for (key, cell) in lost {
            let before = seen.lost.insert(*key, *cell).unwrap_or_default();
            let samples = cell.samples.saturating_sub(before.samples);
            let bytes = cell.bytes.saturating_sub(before.bytes);
            let hits = cell.hits.saturating_sub(before.hits);
            let tails = cell.tails.saturating_sub(before.tails);
            if samples > 0 {
                let mut row = RowMoments::default();
                row.add_lost(Design::from_word(key.design), samples, bytes, hits, tails);
                let cell = SizeCell::of((bytes as f64 / samples as f64).round() as u64);
                rows.push((RowKey { process, stack: StackId::LOST, cell }, Allocated::from(row)));
            }
        }
        for (key, row) in rows {
            self.add_row(key, &row, self.open.start_ns);
        }
    }

    /// The counters of a process at the last observation.
    pub fn seen(&self, process: ProcessId) -> ClassTotals {
        self.seen.get(&process).map_or_else(ClassTotals::default, |seen| seen.totals)
    }

    /// Removes the counters of a process that has exited. Counters under this id then belong to
    /// another process.
    pub fn forget(&mut self, process: ProcessId) {
        self.seen.remove(&process);
    }

    /// Stacks in all slots; a stack may be repeated.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.slots().flat_map(Slot::stacks)
    }

    /// Applies moves of folded processes and of discarded stacks: allocations move to the folded
    /// record, or lose their stack.
    pub fn fold(&mut self, moves: &Moves) {
        let slots = self.levels.iter_mut().flatten().chain(std::iter::once(&mut self.open));
        for slot in slots {
            self.entries -= slot.fold(moves);
            self.departed -= slot.departed.fold(moves);
        }
    }

    /// Whether the open slot is long enough to be closed.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.open.start_ns) >= SLOT_NS
    }

    /// Closes the open slot at `now_ns`. All processes must have been observed just before.
    pub fn close(&mut self, now_ns: u64) {
        let now_ns = now_ns.max(self.open.start_ns);
        let mut closed = std::mem::replace(&mut self.open, Slot::new(now_ns));
        closed.end_ns = now_ns;
        self.levels[0].push_back(closed);
        for (index, Level { slots, merged }) in LEVELS.iter().enumerate() {
            while self.levels[index].len() > slots + merged.saturating_sub(1) {
                if *merged == 0 {
                    self.drop_oldest();
                } else {
                    self.merge(index, *merged);
                }
            }
        }
        while self.entries > self.bound && self.drop_oldest() {}
    }

    /// Merges the oldest slots of a level to one slot of the next level.
    fn merge(&mut self, level: usize, slots: usize) {
        let mut oldest = self.levels[level].drain(..slots);
        let Some(mut sum) = oldest.next() else { return };
        let mut departed = sum.departed.len();
        for slot in oldest {
            departed += slot.departed.len();
            self.entries -= sum.add(slot);
        }
        sum.departed.coarsen(sum.start_ns, |arrived_ns| self.start_of(arrived_ns));
        self.departed -= departed - sum.departed.len();
        self.levels[level + 1].push_back(sum);
    }

    /// Drops the oldest closed slot. Returns false if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(slot) = self.levels.iter_mut().rev().find_map(VecDeque::pop_front) else {
            return false;
        };
        self.entries -= slot.entries();
        self.departed -= slot.departed.len();
        self.dropped = true;
        true
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let closed = self.levels.iter().rev().flatten();
        closed.chain(std::iter::once(&self.open))
    }

    /// Returns the window from `since_ns` to `until_ns`, rounded outward to borders with a
    /// tolerance of a millisecond. The newest slot ends at `now_ns`. If no slot was dropped, a
    /// window that begins before the first slot begins with the first slot: nothing was profiled
    /// before.
    pub fn between(&self, since_ns: u64, until_ns: u64, now_ns: u64) -> Result<Window<'_>, TooOld> {
        let oldest_ns = self.slots().next().map_or(now_ns, |slot| slot.start_ns);
        if self.dropped && since_ns + BORDER_NS < oldest_ns {
            return Err(TooOld { oldest_ns });
        }
        let end = |slot: &Slot| if slot.end_ns == u64::MAX { now_ns } else { slot.end_ns };
        let since_ns = since_ns.saturating_add(BORDER_NS).min(now_ns);
        // At least the slot that contains `since_ns`.
        let until_ns = until_ns.saturating_sub(BORDER_NS).max(since_ns.saturating_add(1));
        let within = |slot: &&Slot| slot.start_ns < until_ns && slot.end_ns > since_ns;
        let slots: Vec<&Slot> = self.slots().filter(within).collect();
        let start_ns = slots.first().map_or(oldest_ns, |slot| slot.start_ns);
        let end_ns = slots.last().map_or(start_ns, |slot| end(slot)).max(start_ns);
        Ok(Window { start_ns, end_ns, slots })
    }

    /// The closed slots that begin at the border `since_ns` or later and end until `until_ns`. The
    /// next call begins where this window ends, so that no slot is in two windows. If slots were
    /// dropped or merged over the border, the window begins at the next border.
    pub fn closed(&self, since_ns: u64, until_ns: u64) -> Window<'_> {
        let oldest_ns = self.slots().next().map_or(since_ns, |slot| slot.start_ns);
        let since_ns = since_ns.max(oldest_ns);
        let within = |slot: &&Slot| slot.start_ns >= since_ns && slot.end_ns <= until_ns;
        let slots: Vec<&Slot> = self.slots().filter(within).collect();
        let start_ns = slots.first().map_or(since_ns, |slot| slot.start_ns);
        let end_ns = slots.last().map_or(start_ns, |slot| slot.end_ns);
        Window { start_ns, end_ns, slots }
    }

    /// Start and end of each slot that ends after `since_ns`, the oldest first. The newest slot
    /// ends at `now_ns`.
    pub fn borders(&self, since_ns: u64, now_ns: u64) -> Vec<[u64; 2]> {
        let all = self.slots().map(|slot| [slot.start_ns, slot.end_ns.min(now_ns)]);
        all.filter(|[start, end]| *end > since_ns && end > start).collect()
    }

    /// Number of rows and exact totals, and its maximum.
    pub fn len(&self) -> (usize, usize) {
        (self.entries, self.bound)
    }

    /// Whether all slots are empty.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

impl Window<'_> {
    /// Rows of sampled allocations; a key may be repeated. Lost samples have the stack
    /// [`StackId::LOST`].
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &Allocated)> {
        self.slots.iter().flat_map(|slot| slot.rows())
    }

    /// Exact bytes and objects by process and size class.
    pub fn exact(&self) -> FxHashMap<ProcessId, ClassTotals> {
        let mut sums: FxHashMap<ProcessId, ClassTotals> = FxHashMap::default();
        for ((process, class, _), (bytes, objects)) in
            self.slots.iter().flat_map(|slot| slot.exact())
        {
            let sum = sums.entry(process).or_default();
            sum.bytes[usize::from(class)] += bytes;
            sum.objects[usize::from(class)] += objects;
        }
        sums
    }

    /// Exact bytes and objects by process and size class, and by the band of rates at which they
    /// were sampled.
    pub fn by_band(&self) -> FxHashMap<(ProcessId, u8), BTreeMap<Band, (u64, u64)>> {
        let mut sums: FxHashMap<_, BTreeMap<Band, (u64, u64)>> = FxHashMap::default();
        for ((process, class, band), more) in self.slots.iter().flat_map(|slot| slot.exact()) {
            let sum = sums.entry((process, class)).or_default().entry(band).or_default();
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
        sums
    }

    /// Whether the window contains a time.
    pub fn has(&self, time_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&time_ns)
    }
}

#[cfg(test)]
mod tests;
