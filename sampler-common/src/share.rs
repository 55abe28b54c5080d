//! How much of a shared table one process may fill.
//!
//! Plainly: a process may take twice as much as all processes leave free. A quarter of the table is
//! kept for processes that hold little, so that there is always some room for each of
//! [`PROCESSES`].
//!
//! ```text
//! common = ¾ · bound        least = ¼ · bound / PROCESSES
//! more is granted  ⇔  own < least,  or  own < 2 · (common − used)
//! ```
//!
//! One process alone fills half of the table. After k processes, however greedy, 3/4 · 3^−k of the
//! table are free, and never less than `least` for each further process. (Dynamic thresholds with
//! α = 2: Choudhury and Hahne, 1998.)

use std::collections::BTreeMap;

/// Number of processes that always find some room.
pub const PROCESSES: usize = 1024;

/// Entries of a table that one process alone can fill.
pub const fn alone(bound: usize) -> usize {
    bound / 2
}

/// Whether a process that holds `own` entries of a table may hold one more, if all processes
/// together hold `used` of `bound`.
pub const fn may_grow(own: usize, used: usize, bound: usize) -> bool {
    let kept = bound / 4;
    let is_little = own < kept / PROCESSES;
    is_little && used < bound || own < 2 * (bound - kept).saturating_sub(used)
}

/// Numbers of a table's entries, by the process that holds them.
#[derive(Debug)]
pub struct Shares<P>(BTreeMap<P, usize>);

impl<P> Default for Shares<P> {
    fn default() -> Shares<P> {
        Shares(BTreeMap::new())
    }
}

impl<P: Ord> Shares<P> {
    /// Adds an entry to a process if the process may hold one more, and returns whether it may. All
    /// processes hold `used` of `bound`.
    pub fn grow(&mut self, process: P, used: usize, bound: usize) -> bool {
        self.grow_by(1, process, used, bound)
    }

    /// Adds an entry of a given size, as [`Shares::grow`] does for size 1. A process may exceed its
    /// share by one entry.
    pub fn grow_by(&mut self, size: usize, process: P, used: usize, bound: usize) -> bool {
        let own = self.0.entry(process).or_default();
        let grows = may_grow(*own, used, bound);
        *own += if grows { size } else { 0 };
        grows
    }

    /// Whether a process could hold one more entry, if all processes hold `used` of `bound`.
    pub fn has_room(&self, process: P, used: usize, bound: usize) -> bool {
        may_grow(self.0.get(&process).copied().unwrap_or(0), used, bound)
    }

    /// Counts all entries again, given the holder of each.
    pub fn recount(&mut self, holders: impl Iterator<Item = P>) {
        self.recount_sizes(holders.map(|process| (process, 1)));
    }

    /// Counts all entries again, given the holder and the size of each.
    pub fn recount_sizes(&mut self, holders: impl Iterator<Item = (P, usize)>) {
        self.0.clear();
        holders.for_each(|(process, size)| *self.0.entry(process).or_default() += size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: usize = 64 * 1024;
    const LEAST: usize = BOUND / 4 / PROCESSES;

    /// Takes up to `wanted` entries for a process; returns the number granted.
    fn take(held: &mut [usize], process: usize, wanted: usize) -> usize {
        let mut taken = 0;
        while taken < wanted && may_grow(held[process], held.iter().sum(), BOUND) {
            held[process] += 1;
            taken += 1;
        }
        taken
    }

    #[test]
    fn greedy_processes_leave_a_third_of_the_free_room() {
        let mut held = vec![0; 8];
        let taken: Vec<usize> = (0..8).map(|process| take(&mut held, process, BOUND)).collect();
        assert_eq!(taken[..4], [32768, 10923, 3641, 1214]);
        assert_eq!(taken[0], alone(BOUND));
        assert!(taken[7] >= LEAST);
    }

    proptest! {
        /// Whatever other processes have taken before, in any order, a process with little gets all
        /// that it wants.
        #[test]
        fn a_process_with_little_always_finds_room(
            greedy in prop::collection::vec((0usize..64, 1usize..BOUND), 0..200),
        ) {
            let mut held = vec![0; PROCESSES];
            for (process, wanted) in greedy {
                take(&mut held, process, wanted);
            }
            for process in 64..PROCESSES {
                prop_assert_eq!(take(&mut held, process, LEAST), LEAST);
            }
            prop_assert!(held.iter().sum::<usize>() <= BOUND);
        }
    }
}
