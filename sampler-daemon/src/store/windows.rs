//! What was allocated when: a bounded ring of time slots beside the rows since start.
//!
//! Slots of a second for the last two minutes; older ones are merged, ten to a slot of 10 s for half an hour, six of these to a slot
//! of a minute for six hours, ten of these to a slot of ten minutes for a day. A slot has the sampled allocations by their own time
//! and exact totals by what was counted between its borders; so a window from border to border has exact totals as well, and
//! windows are rounded outward to borders. Times are `CLOCK_MONOTONIC` in nanoseconds, given by the caller.
//!
//! Bounds: some 830 slots, and [`MAX_ENTRIES`] rows and totals in all of them together. At either the oldest slot is dropped, and
//! windows that begin before the next one are refused; samples of the newest slot, if it fills everything alone, go to
//! [`StackId::TABLE_FULL`]. What went in each slot (the module `went`) has a bound of its own, [`MAX_DEPARTED`].

mod departed;
mod slot;
mod went;

use super::epochs::Band;
use super::{ClassTotals, Moves, ProcessId, RowKey, SizeCell, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{RowMoments, Sample};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::Design;
use sampler_common::wire::{LostCell, LostKey};
pub use slot::{Allocated, Slot};
use std::collections::{BTreeMap, VecDeque};
pub use went::{CutShort, MAX_DEPARTED};

/// The shortest slot.
pub const SLOT_NS: u64 = 1_000_000_000;

/// What lies this close to a border lies at it: clocks that people read are not read twice alike.
const BORDER_NS: u64 = 1_000_000;

/// Rows and exact totals in all slots together at most: about 40 MiB.
pub const MAX_ENTRIES: usize = 256 * 1024;

/// Slots of one length.
struct Level {
    /// Slots held at least.
    slots: usize,
    /// So many more are merged to one of the next level; 0 in the last level, whose oldest slots are dropped.
    merged: usize,
}

const LEVELS: [Level; 4] = [
    Level { slots: 120, merged: 10 },
    Level { slots: 180, merged: 6 },
    Level { slots: 360, merged: 10 },
    Level { slots: 144, merged: 0 },
];

/// What was seen of a process at the last look.
#[derive(Default)]
struct Seen {
    totals: ClassTotals,
    lost: FxHashMap<LostKey, LostCell>,
}

/// A window begins before the oldest slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// Since when there are windows.
    pub oldest_ns: u64,
}

/// The slots that a window consists of.
pub struct Window<'a> {
    /// From when, inclusive.
    pub start_ns: u64,
    /// To when, exclusive.
    pub end_ns: u64,
    slots: Vec<&'a Slot>,
}

/// The slots.
pub struct Windows {
    /// Closed slots, the oldest first; the levels from the finest to the coarsest.
    levels: [VecDeque<Slot>; LEVELS.len()],
    open: Slot,
    seen: FxHashMap<ProcessId, Seen>,
    entries: usize,
    bound: usize,
    /// Cells of what went, in all slots, and the most that are.
    departed: usize,
    departed_bound: usize,
    /// Whether slots were dropped.
    dropped: bool,
}

impl Windows {
    /// From `now_ns` on.
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

    /// Adds an allocation sampled at `time_ns`; false if it had to go to [`StackId::TABLE_FULL`].
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

    /// The same with the moments of the sample.
    pub(super) fn add_moments(&mut self, key: RowKey, moments: RowMoments, time_ns: u64) -> bool {
        self.add_row(key, &Allocated::from(moments), time_ns)
    }

    fn add_row(&mut self, mut key: RowKey, row: &Allocated, time_ns: u64) -> bool {
        let full = self.entries >= self.bound;
        // One that is older than everything was too late.
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

    /// The slot that has this time.
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

    /// Takes in the counters of a process as they are now; what is new belongs to the newest slot. A process that has exited is looked at
    /// a last time, and then [`Windows::forget`]-ed. `bands` are those of the rates that were in force since the last look.
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

    /// The counters of a process as they were at the last look.
    pub fn seen(&self, process: ProcessId) -> ClassTotals {
        self.seen.get(&process).map_or_else(ClassTotals::default, |seen| seen.totals)
    }

    /// Forgets the counters of a process that has exited: should they be seen again, they are another's.
    pub fn forget(&mut self, process: ProcessId) {
        self.seen.remove(&process);
    }

    /// Stacks in all slots, each perhaps several times.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.slots().flat_map(Slot::stacks)
    }

    /// What was allocated by processes that were folded is the others' from now on; what was at stacks that were given up has none.
    pub fn fold(&mut self, moves: &Moves) {
        let slots = self.levels.iter_mut().flatten().chain(std::iter::once(&mut self.open));
        for slot in slots {
            self.entries -= slot.fold(moves);
            self.departed -= slot.departed.fold(moves);
        }
    }

    /// Whether it is time for a border.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.open.start_ns) >= SLOT_NS
    }

    /// Makes a border at `now_ns`: everything was observed just now.
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

    /// Merges the oldest slots of a level to one of the next.
    fn merge(&mut self, level: usize, slots: usize) {
        let mut oldest = self.levels[level].drain(..slots);
        let Some(mut sum) = oldest.next() else { return };
        let mut departed = sum.departed.len();
        for slot in oldest {
            departed += slot.departed.len();
            self.entries -= sum.add(slot);
        }
        sum.departed.coarsen(sum.start_ns, |came_ns| self.start_of(came_ns));
        self.departed -= departed - sum.departed.len();
        self.levels[level + 1].push_back(sum);
    }

    /// Drops the oldest closed slot; false if there is none.
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

    /// The window from `since_ns` to `until_ns`, rounded outward to borders (but for a millisecond); the newest slot ends at `now_ns`. One that begins before
    /// the first slot begins with it, if no slot was dropped: nothing was profiled before.
    pub fn between(&self, since_ns: u64, until_ns: u64, now_ns: u64) -> Result<Window<'_>, TooOld> {
        let oldest_ns = self.slots().next().map_or(now_ns, |slot| slot.start_ns);
        if self.dropped && since_ns + BORDER_NS < oldest_ns {
            return Err(TooOld { oldest_ns });
        }
        let end = |slot: &Slot| if slot.end_ns == u64::MAX { now_ns } else { slot.end_ns };
        let since_ns = since_ns.saturating_add(BORDER_NS).min(now_ns);
        // At least the slot that `since_ns` is in.
        let until_ns = until_ns.saturating_sub(BORDER_NS).max(since_ns.saturating_add(1));
        let within = |slot: &&Slot| slot.start_ns < until_ns && slot.end_ns > since_ns;
        let slots: Vec<&Slot> = self.slots().filter(within).collect();
        let start_ns = slots.first().map_or(oldest_ns, |slot| slot.start_ns);
        let end_ns = slots.last().map_or(start_ns, |slot| end(slot)).max(start_ns);
        Ok(Window { start_ns, end_ns, slots })
    }

    /// The closed slots from a border on that end until `until_ns`: what is asked for next begins where this ends, so that nothing is in two of them. Where
    /// slots were dropped or merged over the border, it begins at the next one.
    pub fn closed(&self, since_ns: u64, until_ns: u64) -> Window<'_> {
        let oldest_ns = self.slots().next().map_or(since_ns, |slot| slot.start_ns);
        let since_ns = since_ns.max(oldest_ns);
        let within = |slot: &&Slot| slot.start_ns >= since_ns && slot.end_ns <= until_ns;
        let slots: Vec<&Slot> = self.slots().filter(within).collect();
        let start_ns = slots.first().map_or(since_ns, |slot| slot.start_ns);
        let end_ns = slots.last().map_or(start_ns, |slot| slot.end_ns);
        Window { start_ns, end_ns, slots }
    }

    /// From when to when each slot is that ends behind `since_ns`, the oldest first; the newest one ends at `now_ns`.
    pub fn borders(&self, since_ns: u64, now_ns: u64) -> Vec<[u64; 2]> {
        let all = self.slots().map(|slot| [slot.start_ns, slot.end_ns.min(now_ns)]);
        all.filter(|[start, end]| *end > since_ns && end > start).collect()
    }

    /// Rows and exact totals held, and the most that are.
    pub fn len(&self) -> (usize, usize) {
        (self.entries, self.bound)
    }

    /// Whether nothing is in any slot.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

impl Window<'_> {
    /// Rows of sampled allocations, each perhaps several times; lost ones have the stack [`StackId::LOST`].
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

    /// Exact bytes and objects by process and size class, and band of rates at which they were sampled.
    pub fn by_band(&self) -> FxHashMap<(ProcessId, u8), BTreeMap<Band, (u64, u64)>> {
        let mut sums: FxHashMap<_, BTreeMap<Band, (u64, u64)>> = FxHashMap::default();
        for ((process, class, band), more) in self.slots.iter().flat_map(|slot| slot.exact()) {
            let sum = sums.entry((process, class)).or_default().entry(band).or_default();
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
        sums
    }

    /// Whether a time is in the window.
    pub fn has(&self, time_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&time_ns)
    }
}

#[cfg(test)]
mod tests;
