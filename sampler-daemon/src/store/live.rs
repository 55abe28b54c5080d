//! The daemon's copy of the live samples. The kernel's live set is authoritative. The copy has the
//! stacks, and is repaired from the live set.

use super::peak::Peaks;
use super::{Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Sample;
use sampler_common::share::{Holder, Shares};
use sampler_common::wire::Space;

/// A sampled block that is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveSample {
    /// The process.
    pub process: ProcessId,
    /// Program image of the process.
    pub space: Space,
    /// Stack of the allocation.
    pub stack: StackId,
    /// The sample; `kept` is the product of its chance of admission to the live set and of its
    /// chances in every thinning since.
    pub sample: Sample,
    /// `CLOCK_MONOTONIC` at the allocation, nanoseconds.
    pub time_ns: u64,
}

impl LiveSample {
    /// Applies moves: of a folded process, or of a discarded stack.
    pub(super) fn follow(&mut self, moves: &Moves) {
        if let Some(moved) = moves.stack(self.process, self.stack) {
            (self.process, self.stack) = moved;
        }
    }
}

/// A live sample, and its number in the order of insertion.
#[derive(Clone, Copy)]
struct Held {
    live: LiveSample,
    number: u64,
}

/// Maximum number of samples of blocks that processes held when they exited (about 20 MiB). Each
/// process may have its share ([`share`](sampler_common::share)).
pub const MAX_LEFT: usize = 256 * 1024;

/// Live samples by number. Their number is bounded by the kernel's live set, which they copy.
#[derive(Default)]
pub struct LiveSamples {
    samples: FxHashMap<u64, Held>,
    peaks: Peaks,
    /// Samples of exited processes, if such samples are kept.
    left: Vec<LiveSample>,
    left_shares: Shares<ProcessId>,
    left_out: u64,
}

impl LiveSamples {
    /// Inserts a sample.
    pub fn insert(&mut self, sample: u64, live: LiveSample) {
        // The sample is known already: its stack has come late.
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

    /// Whether the sample is present.
    pub fn contains(&self, sample: u64) -> bool {
        self.samples.contains_key(&sample)
    }

    /// Removes a sample; `None` if it was not present.
    pub fn remove(&mut self, sample: u64) -> Option<LiveSample> {
        let held = self.samples.remove(&sample)?;
        self.peaks.leave(held.live, held.number);
        Some(held.live)
    }

    /// Removes all samples for which `ends` holds, and returns them.
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

    /// Adds the peaks of folded processes to the peaks of their folded records. These processes
    /// have no live samples any more. Only such processes discard stacks, too.
    /// `holder_of` as for [`Rows::fold`](super::Rows::fold).
    pub fn fold(&mut self, moves: &Moves, holder_of: impl Fn(ProcessId) -> Holder<ProcessId>) {
        self.peaks.fold(moves);
        self.left.iter_mut().for_each(|live| live.follow(moves));
        self.left_shares.recount(self.left.iter().map(|live| holder_of(live.process)));
    }

    /// Keeps samples that have ended with their process. `holder_of` as for
    /// [`Rows::fold`](super::Rows::fold).
    pub fn leave_behind(
        &mut self,
        ended: Vec<LiveSample>,
        holder_of: impl Fn(ProcessId) -> Holder<ProcessId>,
    ) {
        for live in ended {
            match self.left_shares.grow(holder_of(live.process), self.left.len(), MAX_LEFT) {
                true => self.left.push(live),
                false => self.left_out += 1,
            }
        }
    }

    /// Samples of blocks that exited processes held at their end, as far as they were kept.
    pub fn left_behind(&self) -> impl Iterator<Item = &LiveSample> {
        self.left.iter()
    }

    /// Number of samples that were not kept, because their process had its share of [`MAX_LEFT`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Removes a sample whose block is still held. Other samples represent it from now on.
    pub fn thin_out(&mut self, sample: u64) {
        if let Some(held) = self.samples.remove(&sample) {
            self.peaks.reweigh_to_nothing(&held.live, held.number);
        }
    }

    /// Notes that a sample was kept with probability `keep` in a thinning.
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

    /// Samples of blocks that were held at the peak of each process.
    pub fn at_peak(&self) -> impl Iterator<Item = &LiveSample> {
        let held = self.samples.values();
        let held = held.filter(|held| self.peaks.had(held.live.process, held.number));
        held.map(|held| &held.live).chain(self.peaks.gone())
    }

    /// The peak of each process.
    pub fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// Stacks of all samples; a stack may be repeated.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let held = self.samples.values().map(|held| &held.live);
        let all = held.chain(&self.left).chain(self.peaks.gone());
        all.map(|live| (live.process, live.stack))
    }

    /// Number of live samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are no live samples.
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
        // The total is 300 at 20, then 200, then 250.
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
        samples.leave_behind(
            (0..share as u64).map(|time| live(0, 1, time)).collect(),
            Holder::of_unknown_user,
        );
        assert_eq!((samples.left_behind().count(), samples.left_out()), (share, 0));
        samples.leave_behind(vec![live(0, 1, 0); 3], Holder::of_unknown_user);
        assert_eq!((samples.left_behind().count(), samples.left_out()), (share, 3));
        samples.leave_behind(vec![live(1, 1, 0); 300], Holder::of_unknown_user);
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
        // One more byte makes a new peak.
        samples.insert(9, live(0, 1, 60));
        assert_eq!(samples.peaks().get(ProcessId(0)).unwrap().time_ns, 60);
    }

    proptest! {
        /// After any steps, the peak is the largest total so far, and its samples are those that
        /// were held then.
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
