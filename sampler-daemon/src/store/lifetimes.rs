//! Lifetimes of sampled blocks: a life table for every stack of a process.
//!
//! Lifetimes fall into buckets. From 1 µs on, a factor of 1000 has forty buckets (19 % each), so
//! that a millisecond and a second are edges. Blocks of a process that replaced its program or
//! exited were observed until then, and held blocks until now. Neither were freed: their lifetimes
//! are censored.
//! A free whose record was lost has no known time. Such blocks are left out, and counted.
//!
//! Bound: [`MAX_CELLS`] buckets of all stacks. A block that would give its process more than its
//! share ([`share`](sampler_common::share)) counts under [`StackId::TABLE_FULL`].

use super::fold::give_back;
use super::{LiveSample, LiveSamples, Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Moments, Step, Weights};
use sampler_common::share::{Holder, Shares};

/// Maximum number of buckets: about 35 MiB.
pub const MAX_CELLS: usize = 512 * 1024;

/// Number of buckets in a factor of 1000.
const PER_THOUSAND: f64 = 40.0;
/// End of the first bucket, which has all lifetimes below 1 µs.
const FIRST_NS: f64 = 1e3;
/// Number of buckets. The last one has lifetimes of centuries.
const LAST_BUCKET: f64 = 250.0;

/// Ratio of a bucket's edges.
pub const BUCKET_WIDTH: f64 = 1.188_502_227_437_018_5; // 1000^(1/40)

/// The bucket of a lifetime.
fn bucket(lifetime_ns: u64) -> u8 {
    let thousands = (lifetime_ns.max(1) as f64 / FIRST_NS).log10() / 3.0;
    // A lifetime at an edge is in the bucket that begins there, despite rounding errors of the
    // logarithm.
    let number = (thousands * PER_THOUSAND + 1e-9).floor() + 1.0;
    number.clamp(0.0, LAST_BUCKET - 1.0) as u8
}

/// The age in the middle of a bucket, nanoseconds.
fn middle(bucket: u8) -> f64 {
    match bucket {
        0 => 0.5 * FIRST_NS,
        number => FIRST_NS * 1000f64.powf((f64::from(number) - 0.5) / PER_THOUSAND),
    }
}

/// A process, a stack and a bucket.
type Key = (ProcessId, StackId, u8);

/// The fates of the blocks of a stack.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Ages at which blocks were freed or last observed, weighted by bytes.
    pub steps: Vec<Step>,
    /// Bytes times seconds held: for each sample, its size times its lifetime or age.
    pub byte_seconds: Moments,
    /// Samples that were freed.
    pub freed: u64,
    /// Samples that are held.
    pub held: u64,
}

impl Life {
    /// Adds the fates of other blocks.
    pub fn add(&mut self, other: &Life) {
        self.steps.extend_from_slice(&other.steps);
        self.byte_seconds.add(&other.byte_seconds);
        self.freed += other.freed;
        self.held += other.held;
    }

    /// Number of samples with any fate.
    pub fn samples(&self) -> u64 {
        self.byte_seconds.samples
    }
}

/// Life tables of blocks that are no longer held.
#[derive(Default)]
pub struct Lifetimes {
    /// Freed, and censored at the end of the program.
    cells: FxHashMap<Key, [Weights; 2]>,
    shares: Shares<ProcessId>,
    byte_seconds: FxHashMap<(ProcessId, StackId), Moments>,
    /// Samples whose free was not seen.
    unseen: FxHashMap<ProcessId, u64>,
}

impl Lifetimes {
    /// Adds a block of a user's process that was freed at `time_ns`. Returns false if the block had
    /// to go to [`StackId::TABLE_FULL`].
    pub fn freed(&mut self, live: &LiveSample, user: u32, time_ns: u64) -> bool {
        self.end(live, user, time_ns, 0)
    }

    /// Adds a block that was held until its program ended at `time_ns`. Returns false as
    /// [`Lifetimes::freed`] does.
    pub fn ended(&mut self, live: &LiveSample, user: u32, time_ns: u64) -> bool {
        self.end(live, user, time_ns, 1)
    }

    /// Counts a block that was freed at an unknown time.
    pub fn unseen(&mut self, live: &LiveSample) {
        *self.unseen.entry(live.process).or_default() += 1;
    }

    fn end(&mut self, live: &LiveSample, user: u32, time_ns: u64, fate: usize) -> bool {
        let age_ns = time_ns.saturating_sub(live.time_ns);
        let mut stack = live.stack;
        let key = (live.process, stack, bucket(age_ns));
        let holder = Holder { user, process: live.process };
        let is_new = !self.cells.contains_key(&key);
        if is_new && !self.shares.grow(holder, self.cells.len(), MAX_CELLS) {
            stack = StackId::TABLE_FULL;
        }
        let cell = self.cells.entry((live.process, stack, key.2)).or_default();
        cell[fate].add_sample(live.sample.bytes());
        let sum = self.byte_seconds.entry((live.process, stack)).or_default();
        sum.add(&byte_seconds(live, age_ns));
        stack == live.stack
    }

    /// Applies moves of folded processes and of discarded stacks: life tables move to the folded
    /// record, or lose their stack. `holder_of` as for [`Rows::fold`](super::Rows::fold).
    pub fn fold(&mut self, moves: &Moves, holder_of: impl Fn(ProcessId) -> Holder<ProcessId>) {
        let moved = |process: ProcessId, stack: StackId| moves.stack(process, stack).is_some();
        let cells = self.cells.extract_if(|(process, stack, _), _| moved(*process, *stack));
        for ((process, stack, bucket), fates) in cells.collect::<Vec<_>>() {
            let Some((process, stack)) = moves.stack(process, stack) else { continue };
            let sums = self.cells.entry((process, stack, bucket)).or_default();
            sums.iter_mut().zip(&fates).for_each(|(sum, fate)| sum.add(fate));
        }
        give_back(&mut self.cells);
        self.shares.recount(self.cells.keys().map(|(process, ..)| holder_of(*process)));
        let sums = self.byte_seconds.extract_if(|(process, stack), _| moved(*process, *stack));
        for ((process, stack), sum) in sums.collect::<Vec<_>>() {
            let Some((process, stack)) = moves.stack(process, stack) else { continue };
            self.byte_seconds.entry((process, stack)).or_default().add(&sum);
        }
        give_back(&mut self.byte_seconds);
        let unseen = self.unseen.extract_if(|process, _| moves.get(*process).is_some());
        for (process, samples) in unseen.collect::<Vec<_>>() {
            *self.unseen.entry(moves.get(process).unwrap_or(process)).or_default() += samples;
        }
    }

    /// The fates of the blocks of every stack, for the processes asked for. Blocks held at `now_ns`
    /// are included.
    pub fn by_stack(
        &self,
        live: &LiveSamples,
        now_ns: u64,
        is_requested: impl Fn(ProcessId) -> bool,
    ) -> FxHashMap<(ProcessId, StackId), Life> {
        let mut lives: FxHashMap<(ProcessId, StackId), Life> = FxHashMap::default();
        for ((process, stack, bucket), [freed, censored]) in &self.cells {
            if is_requested(*process) {
                let life = lives.entry((*process, *stack)).or_default();
                let age_ns = middle(*bucket);
                life.steps.push(Step { age_ns, freed: *freed, censored: *censored });
                life.freed += freed.samples;
            }
        }
        for (key, sum) in
            self.byte_seconds.iter().filter(|((process, _), _)| is_requested(*process))
        {
            lives.entry(*key).or_default().byte_seconds.add(sum);
        }
        for (_, live) in live.iter().filter(|(_, live)| is_requested(live.process)) {
            let age_ns = now_ns.saturating_sub(live.time_ns);
            let life = lives.entry((live.process, live.stack)).or_default();
            let mut censored = Weights::default();
            censored.add_sample(live.sample.bytes());
            life.steps.push(Step { age_ns: age_ns as f64, freed: Weights::default(), censored });
            life.byte_seconds.add(&byte_seconds(live, age_ns));
            life.held += 1;
        }
        lives
    }

    /// Number of samples whose free was not seen, for the processes asked for.
    pub fn unseen_of(&self, is_requested: impl Fn(ProcessId) -> bool) -> u64 {
        self.unseen
            .iter()
            .filter(|(process, _)| is_requested(**process))
            .map(|(_, samples)| samples)
            .sum()
    }

    /// Stacks with a life table.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        self.byte_seconds.keys().copied()
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

fn byte_seconds(live: &LiveSample, age_ns: u64) -> Moments {
    live.sample.moments(live.sample.size as f64 * (age_ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::estimate::{Confidence, Sample, Survival};
    use sampler_common::sampling::Rate;
    use sampler_common::wire::Space;

    fn live(size: u64, time_ns: u64) -> LiveSample {
        LiveSample {
            process: ProcessId(0),
            space: Space { slot: 0, generation: 1 },
            stack: StackId::LOST,
            sample: Sample::geometric(size, Rate::ALWAYS),
            time_ns,
        }
    }

    #[test]
    fn a_millisecond_and_a_second_are_bucket_edges() {
        assert_eq!([0, 1, 999, 1000].map(bucket), [0, 0, 0, 1]);
        assert_eq!([999_999, 1_000_000].map(bucket), [40, 41]);
        assert_eq!([999_999_999, 1_000_000_000].map(bucket), [80, 81]);
        assert!(bucket(u64::MAX) < 250);
        let mut last = 0;
        for exponent in 0..640 {
            let age = (exponent as f64 / 10.0).exp2() as u64;
            let of = bucket(age);
            assert!(of >= last, "{age}");
            last = of;
            let ratio = middle(of) / age.max(1) as f64;
            assert!(of == 0 || (ratio.ln().abs() < 0.501 * BUCKET_WIDTH.ln()), "{age}: {ratio}");
        }
        assert!((BUCKET_WIDTH.powf(PER_THOUSAND) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn every_end_of_a_block_counts_once() {
        let mut table = Lifetimes::default();
        let mut held = LiveSamples::default();
        table.freed(&live(100, 0), 1, 500_000);
        table.freed(&live(100, 0), 1, 2_000_000_000);
        table.ended(&live(200, 0), 1, 3_000_000_000);
        table.unseen(&live(1 << 40, 0));
        held.insert(1, live(400, 6_000_000_000));
        let lives = table.by_stack(&held, 10_000_000_000, |_| true);
        let life = &lives[&(ProcessId(0), StackId::LOST)];
        assert_eq!((life.freed, life.held, life.samples()), (2, 1, 4));
        assert_eq!(table.unseen_of(|_| true), 1);
        let seconds = 100.0 * 0.0005 + 100.0 * 2.0 + 200.0 * 3.0 + 400.0 * 4.0;
        assert!((life.byte_seconds.sum / seconds - 1.0).abs() < 1e-12);
        let curve = Survival::new(life.steps.clone());
        // Of 800 bytes 100 were freed within a millisecond, then 100 of 700.
        let within = |age| curve.within(age, Confidence::DEFAULT).value;
        assert!((within(1e6) - 1.0 / 8.0).abs() < 1e-12);
        assert!((within(2.5e9) - (1.0 - 7.0 / 8.0 * 6.0 / 7.0)).abs() < 1e-12);
        assert!(table.by_stack(&held, 0, |process| process.0 == 1).is_empty());
    }
}
