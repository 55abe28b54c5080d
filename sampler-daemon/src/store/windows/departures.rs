//! Blocks that were held at the beginning of a window and freed in it.
//!
//! The live set has the blocks that were allocated in the window and stayed. With both, an estimate
//! of growth has no sample of a block that was held all along.
//!
//! Bound: [`MAX_DEPARTED`] cells in all slots. At the bound the oldest slots discard their cells,
//! and growth since one of these slots is refused.

use super::{SLOT_NS, Slot, Window, Windows};
use crate::store::{LiveSample, ProcessId, StackId};
use sampler_common::estimate::Turnover;

/// Maximum number of cells (stack, slot of allocation, slot of free): about 14 MiB.
pub const MAX_DEPARTED: usize = 128 * 1024;

/// Error: the frees of a part of the window were discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutShort {
    /// Start of the time whose frees are complete.
    pub whole_since_ns: u64,
}

/// Blocks of a stack that were freed in a slot of time, and were allocated in an earlier slot.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// The process that allocated.
    pub process: ProcessId,
    /// The stack that allocated.
    pub stack: StackId,
    /// Start of the slot of the allocation.
    pub allocated_ns: u64,
    /// Start of the slot of the free.
    pub freed_ns: u64,
    /// The blocks.
    pub blocks: Turnover,
}

impl Windows {
    /// Adds a block that was freed at `time_ns`.
    pub fn add_departed(&mut self, live: &LiveSample, time_ns: u64) {
        let arrived_ns = self.start_of(live.time_ns);
        if self.slot_at(time_ns).is_none_or(|slot| slot.start_ns <= arrived_ns) {
            return;
        }
        if self.departed >= self.departed_bound {
            self.cut_oldest();
        }
        let mut blocks = Turnover::default();
        blocks.add_sample(&live.sample);
        let Some(slot) = self.slot_at(time_ns) else { return };
        let new = slot.departed.add((live.process, live.stack, arrived_ns), &blocks);
        self.departed += usize::from(new);
    }

    /// The start of the slot that contains this time; 0 before all slots.
    pub(super) fn start_of(&self, time_ns: u64) -> u64 {
        if time_ns >= self.open.start_ns {
            return self.open.start_ns;
        }
        for level in &self.levels {
            let after = level.partition_point(|slot| slot.start_ns <= time_ns);
            if after > 0 {
                return level[after - 1].start_ns;
            }
        }
        0
    }

    /// Discards the cells of the oldest slot that has any.
    fn cut_oldest(&mut self) {
        let closed = self.levels.iter_mut().rev().flatten();
        let mut slots = closed.chain(std::iter::once(&mut self.open));
        if let Some(slot) = slots.find(|slot| slot.departed.len() > 0) {
            self.departed -= slot.departed.cut();
        }
    }

    /// Number of cells of departed blocks, and its maximum.
    pub fn departed(&self) -> (usize, usize) {
        (self.departed, self.departed_bound)
    }
}

impl Window<'_> {
    /// Blocks that were freed in the window, in a later slot than that of their allocation. Cells
    /// of one stack may be repeated.
    ///
    /// # Errors
    /// If some cells of the window were discarded.
    pub fn departed(&self) -> Result<impl Iterator<Item = Departure>, CutShort> {
        if let Some(cut) = self.slots.iter().rev().find(|slot| slot.departed.is_cut()) {
            return Err(CutShort { whole_since_ns: whole_after(cut) });
        }
        Ok(self.slots.iter().flat_map(|slot| departures(slot)))
    }
}

fn departures(slot: &Slot) -> impl Iterator<Item = Departure> {
    let freed_ns = slot.start_ns;
    slot.departed.iter().map(move |((process, stack, allocated_ns), blocks)| Departure {
        process: *process,
        stack: *stack,
        allocated_ns: *allocated_ns,
        freed_ns,
        blocks: *blocks,
    })
}

/// The first border behind a slot. For the open slot, the border is expected after the shortest
/// slot length.
fn whole_after(slot: &Slot) -> u64 {
    if slot.end_ns == u64::MAX { slot.start_ns + SLOT_NS } else { slot.end_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sampler_common::estimate::Sample;
    use sampler_common::sampling::Rate;
    use sampler_common::wire::Space;

    const SECOND: u64 = SLOT_NS;

    fn live(stack: StackId, time_ns: u64) -> LiveSample {
        LiveSample {
            process: ProcessId(1),
            space: Space { slot: 0, generation: 1 },
            stack,
            sample: Sample::geometric(100, Rate::ALWAYS),
            time_ns,
        }
    }

    /// Closes slots of a second up to `now_ns`.
    fn pass(windows: &mut Windows, now_ns: u64) {
        while windows.open.start_ns + SECOND <= now_ns {
            windows.close(windows.open.start_ns + SECOND);
        }
    }

    fn departed(windows: &Windows, since: u64, now: u64) -> u64 {
        let window = windows.between(since * SECOND, now * SECOND, now * SECOND).unwrap();
        earlier(&window)
    }

    /// Number of samples that were held when the window began and were freed in it.
    fn earlier(window: &Window) -> u64 {
        let departed = window.departed().unwrap();
        let earlier = departed.filter(|of| of.allocated_ns < window.start_ns);
        earlier.map(|of| of.blocks.samples).sum()
    }

    #[test]
    fn only_blocks_held_at_the_start_count_as_departed() {
        let mut windows = Windows::new(0);
        // Allocated at 0.5, 10.5, 11.5 and 11.6 s; freed at 11.7 s.
        pass(&mut windows, 11 * SECOND + 1);
        for tenths in [5, 105, 115, 116] {
            windows.add_departed(&live(StackId::LOST, tenths * SECOND / 10), 117 * SECOND / 10);
        }
        pass(&mut windows, 20 * SECOND);
        assert_eq!(windows.departed().0, 2, "what came and went in a slot is nobody's");
        assert_eq!([11, 10, 5, 1, 0].map(|since| departed(&windows, since, 20)), [2, 1, 1, 1, 0]);
        assert_eq!(departed(&windows, 12, 20), 0);
    }

    /// One block in each of 3,000 s, held for 70 s: at any border 70 blocks are held.
    #[test]
    fn merged_slots_keep_departures_across_borders() {
        let mut windows = Windows::new(0);
        for second in 0..3000 {
            pass(&mut windows, second * SECOND);
            if second >= 70 {
                let arrived_ns = (second - 70) * SECOND + SECOND / 2;
                windows
                    .add_departed(&live(StackId::LOST, arrived_ns), second * SECOND + SECOND / 2);
            }
        }
        for since in [2990, 2500, 1200, 600] {
            let window = windows.between(since * SECOND, u64::MAX, 3000 * SECOND).unwrap();
            let start = window.start_ns / SECOND;
            assert_eq!(earlier(&window), (3000 - start).min(70), "since {start}");
        }
        let sum: usize = windows.slots().map(|slot| slot.departed.len()).sum();
        assert_eq!(windows.departed().0, sum);
        assert!(sum < 600, "{sum} cells");
    }

    proptest! {
        /// At every border of a window, the blocks that are still held and those that departed
        /// later are the blocks that were held at that time.
        #[test]
        fn what_was_held_at_each_border_is_known(
            blocks in vec((0u64..900, proptest::option::of(0u64..400)), 1..60),
            since in 0u64..1000,
        ) {
            // Allocated in the middle of one second, freed in the middle of another.
            let middle = |second: u64| second * SECOND + SECOND / 2;
            let of = |(at, age): &(u64, Option<u64>)| (middle(*at), age.map(|age| middle(at + age)));
            let blocks: Vec<(u64, Option<u64>)> = blocks.iter().map(of).collect();
            let mut frees: Vec<(u64, u64)> =
                blocks.iter().filter_map(|(at, freed)| Some(((*freed)?, *at))).collect();
            frees.sort_unstable();
            let (mut windows, now) = (Windows::new(0), 1300 * SECOND);
            for (freed_ns, at_ns) in frees {
                pass(&mut windows, freed_ns);
                windows.add_departed(&live(StackId::LOST, at_ns), freed_ns);
            }
            pass(&mut windows, now);
            let window = windows.between(since * SECOND, now, now).unwrap();
            for [border, _] in windows.borders(window.start_ns, now) {
                let still = blocks.iter().filter(|(at, freed)| freed.is_none() && *at < border);
                let later = window.departed().unwrap();
                let later = later.filter(|of| of.allocated_ns < border && of.freed_ns >= border);
                let found = still.count() as u64 + later.map(|of| of.blocks.samples).sum::<u64>();
                let is_held = |(at, freed): &&(u64, Option<u64>)| {
                    *at < border && freed.is_none_or(|freed| freed > border)
                };
                prop_assert_eq!(found, blocks.iter().filter(is_held).count() as u64);
            }
        }
    }

    #[test]
    fn the_oldest_departures_are_dropped_at_the_bound() {
        let mut windows = Windows::new(0);
        windows.departed_bound = 8;
        for second in 1..=12 {
            pass(&mut windows, second * SECOND);
            windows.add_departed(&live(StackId::LOST, 0), second * SECOND + 1);
        }
        assert_eq!(windows.departed().0, 8);
        let window = |since| windows.between(since * SECOND, u64::MAX, 13 * SECOND).unwrap();
        assert_eq!(window(2).departed().err(), Some(CutShort { whole_since_ns: 5 * SECOND }));
        assert_eq!(earlier(&window(5)), 8);
        // The bound does not affect allocations.
        assert!(windows.is_empty());
        let mut alone = Windows::new(0);
        (alone.departed_bound, alone.open.start_ns) = (1, SECOND);
        alone.add_departed(&live(StackId::LOST, 0), SECOND);
        alone.add_departed(&live(StackId::TABLE_FULL, 0), SECOND);
        let window = alone.between(SECOND, u64::MAX, 2 * SECOND).unwrap();
        assert_eq!(window.departed().err(), Some(CutShort { whole_since_ns: 2 * SECOND }));
    }
}
