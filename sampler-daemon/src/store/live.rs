//! Live samples, as the daemon knows them. The live set in the kernel is the truth; this picture has
//! the stacks, and is repaired from it.

use super::peak::Peaks;
use super::{Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Sample;
use sampler_common::share::Shares;
use sampler_common::wire::Space;

/// A sampled block that is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveSample {
    /// Whose.
    pub process: ProcessId,
    /// Its program image.
    pub space: Space,
    /// Where it was allocated.
    pub stack: StackId,
    /// What was sampled; `kept` is its chance of admission to the live set, and of every thinning since.
    pub sample: Sample,
    /// `CLOCK_MONOTONIC` at the allocation, nanoseconds.
    pub time_ns: u64,
}

impl LiveSample {
    /// Its process was folded, or its stack given up.
    pub(super) fn follow(&mut self, moves: &Moves) {
        if let Some(moved) = moves.stack(self.process, self.stack) {
            (self.process, self.stack) = moved;
        }
    }
}

/// A live sample, and how many had been entered when it was.
#[derive(Clone, Copy)]
struct Held {
    live: LiveSample,
    number: u64,
}

/// Samples of blocks that processes held when they exited, kept at most (about 20 MiB), of each its share ([`share`](sampler_common::share)).
pub const MAX_LEFT: usize = 256 * 1024;

/// Live samples by number. Bounded by the kernel's live set, of which it is a picture.
#[derive(Default)]
pub struct LiveSamples {
    samples: FxHashMap<u64, Held>,
    peaks: Peaks,
    /// Of processes that have exited, where these are kept.
    left: Vec<LiveSample>,
    left_shares: Shares<ProcessId>,
    left_out: u64,
}

impl LiveSamples {
    /// Enters a sample.
    pub fn insert(&mut self, sample: u64, live: LiveSample) {
        // The stack of one that is there has come late.
        if let Some(held) = self.samples.get_mut(&sample) {
            self.peaks.reweigh(&held.live, &live, held.number);
            held.live = live;
            return;
        }
        let number = self.peaks.enter(&live);
        self.samples.insert(sample, Held { live, number });
    }

    /// The sample with this number.
    pub fn get(&self, sample: u64) -> Option<&LiveSample> {
        self.samples.get(&sample).map(|held| &held.live)
    }

    /// Whether the sample is there.
    pub fn contains(&self, sample: u64) -> bool {
        self.samples.contains_key(&sample)
    }

    /// Ends a sample; `None` if it was not there.
    pub fn remove(&mut self, sample: u64) -> Option<LiveSample> {
        let held = self.samples.remove(&sample)?;
        self.peaks.leave(held.live, held.number);
        Some(held.live)
    }

    /// Ends all samples for which `ends` holds, and returns them.
    pub fn remove_where(
        &mut self,
        mut ends: impl FnMut(u64, &LiveSample) -> bool,
    ) -> Vec<LiveSample> {
        let mut ended = Vec::new();
        self.samples.retain(|sample, held| {
            let gone = ends(*sample, &held.live);
            if gone {
                self.peaks.leave(held.live, held.number);
                ended.push(held.live);
            }
            !gone
        });
        ended
    }

    /// Peaks of processes that were folded, none of which has a live sample any more, are parts of the others' from now on. Stacks are given up
    /// by such processes only, too.
    pub fn fold(&mut self, moves: &Moves) {
        self.peaks.fold(moves);
        self.left.iter_mut().for_each(|live| live.follow(moves));
        self.left_shares.recount(self.left.iter().map(|live| live.process));
    }

    /// Keeps samples that have ended with their process.
    pub fn leave_behind(&mut self, ended: Vec<LiveSample>) {
        for live in ended {
            match self.left_shares.grow(live.process, self.left.len(), MAX_LEFT) {
                true => self.left.push(live),
                false => self.left_out += 1,
            }
        }
    }

    /// What exited processes have held to the end, as far as it was kept.
    pub fn left_behind(&self) -> impl Iterator<Item = &LiveSample> {
        self.left.iter()
    }

    /// Samples that were not kept, because their process had its share of [`MAX_LEFT`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Takes a sample out, the others standing for it from now on: the block is still held.
    pub fn thin_out(&mut self, sample: u64) {
        if let Some(held) = self.samples.remove(&sample) {
            self.peaks.reweigh_to_nothing(&held.live, held.number);
        }
    }

    /// A sample was kept with probability `keep` where others were thinned out.
    pub fn keep(&mut self, sample: u64, keep: f64) {
        if let Some(held) = self.samples.get_mut(&sample) {
            let before = held.live;
            held.live.sample.kept *= keep;
            self.peaks.reweigh(&before, &held.live, held.number);
        }
    }

    /// All samples.
    pub fn iter(&self) -> impl Iterator<Item = (&u64, &LiveSample)> {
        self.samples.iter().map(|(sample, held)| (sample, &held.live))
    }

    /// What was held at the moment of each process's largest total.
    pub fn at_peak(&self) -> impl Iterator<Item = &LiveSample> {
        let held = self.samples.values();
        let held = held.filter(|held| self.peaks.had(held.live.process, held.number));
        held.map(|held| &held.live).chain(self.peaks.gone())
    }

    /// The moments of the largest totals.
    pub fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// Stacks of all samples, each perhaps several times.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let held = self.samples.values().map(|held| &held.live);
        let all = held.chain(&self.left).chain(self.peaks.gone());
        all.map(|live| (live.process, live.stack))
    }

    /// Samples held.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sampler_common::sampling::Rate;
    use sampler_common::share::alone;

    fn live(process: u32, size: u64, time_ns: u64) -> LiveSample {
        LiveSample {
            process: ProcessId(process),
            space: Space { slot: 0, generation: 1 },
            stack: StackId::LOST,
            sample: Sample::geometric(size, Rate::ALWAYS),
            time_ns,
        }
    }

    fn peak(samples: &LiveSamples, process: u32) -> (u64, Vec<u64>) {
        let of = ProcessId(process);
        let mut sizes: Vec<u64> = samples
            .at_peak()
            .filter(|live| live.process == of)
            .map(|live| live.sample.size)
            .collect();
        sizes.sort_unstable();
        (samples.peaks().get(of).map_or(0, |peak| peak.time_ns), sizes)
    }

    #[test]
    fn the_peak_is_the_set_of_blocks_held_at_that_time() {
        let mut samples = LiveSamples::default();
        samples.insert(1, live(0, 100, 10));
        samples.insert(2, live(0, 200, 20));
        samples.remove(1);
        samples.insert(3, live(0, 50, 30));
        samples.insert(4, live(1, 7, 40));
        // 300 at 20, then 200, then 250.
        assert_eq!(peak(&samples, 0), (20, vec![100, 200]));
        samples.insert(5, live(0, 51, 50));
        assert_eq!(peak(&samples, 0), (50, vec![50, 51, 200]));
        let ended = samples.remove_where(|_, live| live.process == ProcessId(0));
        assert_eq!((ended.len(), samples.len()), (3, 1));
        assert_eq!(peak(&samples, 0), (50, vec![50, 51, 200]));
        assert_eq!(peak(&samples, 1), (40, vec![7]));
    }

    #[test]
    fn blocks_kept_from_exited_processes_are_bounded() {
        let mut samples = LiveSamples::default();
        let share = alone(MAX_LEFT);
        samples.leave_behind((0..share as u64).map(|time| live(0, 1, time)).collect());
        assert_eq!((samples.left_behind().count(), samples.left_out()), (share, 0));
        samples.leave_behind(vec![live(0, 1, 0); 3]);
        assert_eq!((samples.left_behind().count(), samples.left_out()), (share, 3));
        samples.leave_behind(vec![live(1, 1, 0); 300]);
        assert_eq!((samples.left_behind().count(), samples.left_out()), (share + 300, 3));
        assert!(samples.is_empty(), "nobody holds them");
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let mut samples = LiveSamples::default();
        for sample in 0..8 {
            samples.insert(sample, live(0, 100, sample));
        }
        for sample in 0..4 {
            samples.thin_out(sample);
            samples.keep(sample + 4, 0.5);
        }
        let peak = samples.peaks().get(ProcessId(0)).unwrap();
        assert_eq!((peak.bytes, peak.time_ns), (800.0, 7));
        let sum: f64 = samples.at_peak().map(|live| live.sample.bytes()).sum();
        assert_eq!(sum, 800.0);
        // As much again makes a new one.
        samples.insert(9, live(0, 1, 60));
        assert_eq!(samples.peaks().get(ProcessId(0)).unwrap().time_ns, 60);
    }

    proptest! {
        /// Whatever comes and goes, the peak is the largest total that ever was, and its samples are those held then.
        #[test]
        fn the_peak_is_the_largest_total(steps in prop::collection::vec((0u64..12, 1u64..1000), 1..200)) {
            let mut samples = LiveSamples::default();
            let mut held = std::collections::BTreeMap::new();
            let (mut largest, mut then, mut at) = (0, vec![], 0);
            for (time, (sample, size)) in (1..).zip(steps) {
                if held.remove(&sample).is_some() {
                    prop_assert!(samples.remove(sample).is_some());
                    continue;
                }
                held.insert(sample, size);
                samples.insert(sample, live(0, size, time));
                let total: u64 = held.values().sum();
                if total > largest {
                    (largest, at) = (total, time);
                    then = held.values().copied().collect();
                    then.sort_unstable();
                }
            }
            prop_assert_eq!(peak(&samples, 0), (at, then));
        }
    }
}
