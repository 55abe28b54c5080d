//! The largest live total of each process: its time, and the samples that were held then.
//!
//! Plainly: the estimated held bytes are summed as samples come and go. The samples of the largest
//! sum are those that are still held, and those that were freed since. The latter are kept until a
//! larger sum comes. The bookkeeping is exact, but the sums are estimates. The largest of many
//! estimates is, on average, a little above the largest true total.
//!
//! Thinning gives samples other weights. The sums follow, and so does the largest sum.
//!
//! Bound: [`MAX_GONE`] freed samples over all processes. At the bound, the process with most freed
//! samples loses them.

use super::{LiveSample, Moves, ProcessId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Maximum number of samples of peaks that are no longer held: about 20 MiB.
pub const MAX_GONE: usize = 256 * 1024;

/// The largest total of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Estimated bytes held at the peak.
    pub bytes: f64,
    /// Time of the peak, `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// Whether the samples freed since were discarded. The samples are then a lower bound.
    pub forgotten: bool,
}

/// The running total of a process.
#[derive(Debug)]
struct Total {
    bytes: f64,
    samples: u64,
    peak: Peak,
    /// Number of samples of all processes that were entered up to the peak.
    number: u64,
    gone: Vec<LiveSample>,
    /// Time of the last change, as a number of samples entered.
    last: u64,
}

/// The peaks of all processes.
pub struct Peaks {
    totals: FxHashMap<ProcessId, Total>,
    /// Number of samples entered.
    entered: u64,
    gone: usize,
    bound: usize,
}

impl Default for Peaks {
    fn default() -> Peaks {
        Peaks { totals: FxHashMap::default(), entered: 0, gone: 0, bound: MAX_GONE }
    }
}

impl Peaks {
    /// Enters a sample and returns its number.
    pub(super) fn enter(&mut self, live: &LiveSample) -> u64 {
        self.entered += 1;
        let number = self.entered;
        let total = self.totals.entry(live.process).or_insert_with(|| Total {
            bytes: 0.0,
            samples: 0,
            peak: Peak { bytes: 0.0, time_ns: live.time_ns, forgotten: false },
            number: 0,
            gone: Vec::new(),
            last: number,
        });
        total.bytes += live.sample.bytes();
        total.samples += 1;
        total.last = number;
        if total.bytes > total.peak.bytes {
            total.peak = Peak { bytes: total.bytes, time_ns: live.time_ns, forgotten: false };
            total.number = number;
            self.gone -= total.gone.len();
            total.gone.clear();
        }
        number
    }

    /// Handles a sample whose block is no longer held.
    pub(super) fn leave(&mut self, live: LiveSample, number: u64) {
        let full = self.gone >= self.bound && self.had(live.process, number);
        if full {
            self.forget_largest();
        }
        let entered = self.entered;
        let Some(total) = self.totals.get_mut(&live.process) else { return };
        total.last = entered;
        total.subtract(live.sample.bytes());
        if number > total.number || total.peak.forgotten {
            return;
        }
        total.gone.push(live);
        self.gone += 1;
    }

    /// Discards the freed samples of the process that has most of them. Of several such processes,
    /// the one without changes for the longest time loses them.
    fn forget_largest(&mut self) {
        let all = self.totals.values_mut();
        if let Some(total) = all.max_by_key(|total| (total.gone.len(), Reverse(total.last))) {
            self.gone -= total.gone.len();
            total.gone = Vec::new();
            total.peak.forgotten = true;
        }
    }

    /// Adds the peaks of folded processes to those of their folded records. Each process
    /// contributes its own peak, whenever that was.
    pub(super) fn fold(&mut self, moves: &Moves) {
        let gone = self.totals.values_mut().flat_map(|total| &mut total.gone);
        gone.for_each(|live| live.follow(moves));
        let folded = self.totals.extract_if(|process, _| moves.get(*process).is_some());
        for (process, total) in folded.collect::<Vec<_>>() {
            let process = moves.get(process).unwrap_or(process);
            match self.totals.get_mut(&process) {
                Some(sum) => sum.absorb(total),
                None => {
                    self.totals.insert(process, total);
                }
            }
        }
    }

    /// Notes that a held sample has another weight.
    pub(super) fn reweigh(&mut self, before: &LiveSample, after: &LiveSample, number: u64) {
        self.change(before, after.sample.bytes() - before.sample.bytes(), number);
    }

    /// Notes that a held sample is thinned out.
    pub(super) fn reweigh_to_nothing(&mut self, live: &LiveSample, number: u64) {
        self.change(live, -live.sample.bytes(), number);
        if let Some(total) = self.totals.get_mut(&live.process) {
            total.samples -= 1;
        }
    }

    /// Changes the weight of a sample, in the total and in the peak if the peak includes it.
    fn change(&mut self, live: &LiveSample, bytes: f64, number: u64) {
        let Some(total) = self.totals.get_mut(&live.process) else { return };
        total.bytes += bytes;
        if number <= total.number {
            total.peak.bytes += bytes;
        }
    }

    /// Whether a sample that is held now was held at its process's peak.
    pub(super) fn had(&self, process: ProcessId, number: u64) -> bool {
        self.totals.get(&process).is_some_and(|total| number <= total.number)
    }

    /// Samples of peaks that are no longer held.
    pub(super) fn gone(&self) -> impl Iterator<Item = &LiveSample> {
        self.totals.values().flat_map(|total| &total.gone)
    }

    /// The peak of a process; `None` if it never had a live sample.
    pub fn get(&self, process: ProcessId) -> Option<Peak> {
        self.totals.get(&process).map(|total| total.peak)
    }

    /// Number of samples of peaks that are no longer held, and its maximum.
    pub fn len(&self) -> (usize, usize) {
        (self.gone, self.bound)
    }

    /// Whether no process has a peak.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }
}

impl Total {
    /// Adds the peak of another process, which holds nothing any more.
    fn absorb(&mut self, other: Total) {
        self.peak.bytes += other.peak.bytes;
        self.peak.time_ns = self.peak.time_ns.max(other.peak.time_ns);
        self.peak.forgotten |= other.peak.forgotten;
        self.last = self.last.max(other.last);
        self.number = self.number.max(other.number);
        self.gone.extend(other.gone);
    }

    fn subtract(&mut self, bytes: f64) {
        self.samples -= 1;
        // Rounding errors do not accumulate.
        self.bytes = if self.samples == 0 { 0.0 } else { self.bytes - bytes };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StackId;
    use sampler_common::estimate::Sample;
    use sampler_common::sampling::Rate;
    use sampler_common::wire::Space;

    fn live(process: u32) -> LiveSample {
        LiveSample {
            process: ProcessId(process),
            space: Space { slot: 0, generation: 1 },
            stack: StackId::LOST,
            sample: Sample::geometric(10, Rate::ALWAYS),
            time_ns: 0,
        }
    }

    #[test]
    fn the_largest_peak_is_forgotten_at_the_bound() {
        let mut peaks = Peaks { bound: 5, ..Peaks::default() };
        for (process, samples) in [(0, 2), (1, 1), (2, 3)] {
            let numbers: Vec<u64> = (0..samples).map(|_| peaks.enter(&live(process))).collect();
            numbers.into_iter().for_each(|number| peaks.leave(live(process), number));
        }
        let forgotten = [0, 1, 2].map(|process| peaks.get(ProcessId(process)).unwrap().forgotten);
        assert_eq!(
            (forgotten, peaks.len(), peaks.gone().count()),
            ([true, false, false], (4, 5), 4)
        );
        // A new peak is complete again.
        let numbers = [0, 1, 2].map(|_| peaks.enter(&live(0)));
        numbers.into_iter().for_each(|number| peaks.leave(live(0), number));
        assert!(!peaks.get(ProcessId(0)).unwrap().forgotten);
    }
}
