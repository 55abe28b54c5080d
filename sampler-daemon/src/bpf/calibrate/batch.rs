//! Batches of calls, with and without.

use super::hits;
use super::points::{probed, twin};
use crate::bpf::kernel::{Kernel, Settings};
use crate::bpf::sys::ground::{Function, Ground};
use rustix::time::{ClockId, clock_gettime};
use sampler_common::cost::{Measured, Program};
use sampler_common::limits::{CLASSES, FOLLOW_BYTES};
use sampler_common::sampling::{Design, Rate, Strategy};
use sampler_common::wire::AllocationRecord;
use std::time::{Duration, Instant};

/// Calls in a batch: emulated, single-stepped, followed ones.
const EMULATED_CALLS: usize = 32;
const STEPPED_CALLS: usize = 4;
const FOLLOWED_CALLS: usize = 16;
/// Calls of a batch with other work between them.
const DISTURBED_CALLS: usize = 15;
/// Bytes that such work looks at: enough to empty every first-level cache, and less than a second-level one.
const OTHER_DATA: usize = 512 * 1024;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Samples in a batch, where the ring has room for that many.
const SAMPLED_CALLS: usize = 4;
/// Of the ring no more than this part is taken by a batch.
const RING_PART: usize = 4;

/// Bytes requested of calls that are not followed.
const SMALL_REQUEST_BYTES: u64 = 64;
/// Bytes of stack that samples are taken with: into each tier one that fills it nearly, as stacks do, and a short one.
const STACKS: [usize; 6] = [1024, 3584, 7168, 14_336, 28_672, 57_344];
/// Bytes of stack above a call that is not sampled.
const NO_STACK: usize = 1024;
/// Addresses that blocks are said to be at.
const BLOCKS: u64 = 0x1000;

/// What has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A hit: the program, and whether the instruction is single-stepped.
    Hit(Program, bool),
    /// What a hit takes more where caches are emptied between any two, of the kernel and of the program together.
    Disturbed,
    /// Following a call to its return.
    Returned,
    /// A sample with so many bytes of stack, more than following the call.
    Sampled(usize),
    /// The end of a sampled block, more than the hit.
    Ended,
}

/// CPU time of this thread.
pub(super) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Nanoseconds per call of each pair of batches, by kind.
pub(super) struct Batches<'a> {
    ground: &'a Ground,
    settings: &'a Settings,
    slot: u32,
    differences: Vec<(Kind, Vec<f64>)>,
    /// What a program does between two hits.
    other_data: Vec<u8>,
}

/// Reads a byte of every cache line.
fn touch(data: &[u8]) {
    let sum = data.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

/// A call of a function: its first two arguments.
#[derive(Clone, Copy)]
struct CallArguments(u64, u64);

impl<'a> Batches<'a> {
    pub(super) fn new(ground: &'a Ground, settings: &'a Settings, slot: u32) -> Batches<'a> {
        let other_data = vec![1; OTHER_DATA];
        Batches { ground, settings, slot, differences: Vec::new(), other_data }
    }

    /// One pair of batches of each kind; unless it is of the first look, without those that take long or send records.
    pub(super) fn round(&mut self, kernel: &mut Kernel, round: usize, is_first: bool) {
        self.sample(kernel, false);
        let uses_usdt = kernel.usdt.is_some();
        let hits = hits(self.settings.track_live);
        for (program, stepped) in hits.filter(|(of, _)| uses_usdt || !of.is_usdt()) {
            let calls = if stepped { STEPPED_CALLS } else { EMULATED_CALLS };
            // calloc(1, n), malloc(n), free(p), alloc(p, 0, …): of no bytes it is no sample.
            let asked = match program {
                Program::Shaped => CallArguments(1, SMALL_REQUEST_BYTES),
                _ => CallArguments(SMALL_REQUEST_BYTES, 0),
            };
            let batch = |of| self.time(of, NO_STACK, calls, |_| asked);
            let (with, without) = (probed(program, stepped), twin(program, stepped));
            let pair = in_turn(round, || batch(with), || batch(without));
            self.enter(Kind::Hit(program, stepped), pair, calls);
        }
        let malloc = probed(Program::Malloc, false);
        let batch =
            |bytes| self.time(malloc, NO_STACK, FOLLOWED_CALLS, |_| CallArguments(bytes, 0));
        let pair = in_turn(round, || batch(FOLLOW_BYTES), || batch(SMALL_REQUEST_BYTES));
        self.enter(Kind::Returned, pair, FOLLOWED_CALLS);
        if is_first {
            self.disturbed(round);
            for stack in self.stacks() {
                self.sampled(kernel, stack);
            }
        }
    }

    /// Hits with other work around them against hits without, by the clock: the work alone would drown them, so that calls are timed one by
    /// one, each with the work behind it, which finds less in the caches than it left. Of the calls of a batch the median: who is
    /// interrupted does not show.
    fn disturbed(&mut self, round: usize) {
        let typical = |of, disturb| {
            let each = (0..DISTURBED_CALLS).map(|_| {
                if disturb {
                    touch(&self.other_data);
                }
                let begin = Instant::now();
                self.ground.call(of, NO_STACK, [SMALL_REQUEST_BYTES, 0, BLOCKS]);
                if disturb {
                    touch(&self.other_data);
                }
                begin.elapsed()
            });
            let mut each: Vec<Duration> = each.collect();
            each.sort_unstable();
            each[each.len() / 2]
        };
        let (probed, twin) = (probed(Program::Malloc, false), twin(Program::Malloc, false));
        let pair = in_turn(round, || typical(probed, true), || typical(twin, true));
        let still = in_turn(round, || typical(probed, false), || typical(twin, false));
        self.enter(Kind::Disturbed, (pair.0 + still.1, pair.1 + still.0), 1);
    }

    /// Sizes of stacks that are worth a look: by frame pointers they do not matter.
    fn stacks(&self) -> Vec<usize> {
        let largest = match self.settings.frame_pointers {
            true => STACKS[0],
            false => self.settings.snapshot_bytes as usize,
        };
        STACKS.into_iter().filter(|bytes| *bytes <= largest).collect()
    }

    /// Samples, and the ends of the same blocks; against calls that are followed, and frees of other blocks.
    fn sampled(&mut self, kernel: &mut Kernel, stack: usize) {
        let record = (size_of::<AllocationRecord>() + stack.next_power_of_two().max(4096)) * 2;
        let room = self.settings.ring_bytes as usize / RING_PART / record;
        let calls = SAMPLED_CALLS.min(room);
        if calls == 0 {
            return;
        }
        let (malloc, free) = (probed(Program::Malloc, false), probed(Program::Free, false));
        let block = |index: usize| BLOCKS + 64 * index as u64;
        let other = |index: usize| block(index + SAMPLED_CALLS);
        self.sample(kernel, true);
        let with = self.time_blocks(malloc, stack, calls, |index| {
            (CallArguments(SMALL_REQUEST_BYTES, 0), block(index))
        });
        self.sample(kernel, false);
        let without = self.time_blocks(malloc, stack, calls, |index| {
            (CallArguments(FOLLOW_BYTES, 0), other(index))
        });
        self.enter(Kind::Sampled(stack), (with, without), calls);
        if self.settings.track_live {
            let with = self.time(free, NO_STACK, calls, |index| CallArguments(block(index), 0));
            let without = self.time(free, NO_STACK, calls, |index| CallArguments(other(index), 0));
            self.enter(Kind::Ended, (with, without), calls);
        }
        let until = kernel.ring.produced();
        kernel.ring.read(usize::MAX, until, |_| {});
    }

    /// Whether every call is sampled from now on, or practically none: with a hazard of 2⁻⁴⁸ per byte.
    fn sample(&self, kernel: &mut Kernel, all: bool) {
        let rate = if all { Rate::ALWAYS } else { Rate::from_raw(1) };
        let design = Design::new(Strategy::Geometric, rate);
        kernel.slots.set_designs(self.slot, &[design; CLASSES]);
    }

    fn time(
        &self,
        of: Function,
        stack: usize,
        calls: usize,
        asked: impl Fn(usize) -> CallArguments,
    ) -> Duration {
        self.time_blocks(of, stack, calls, |index| (asked(index), BLOCKS))
    }

    /// CPU time of some calls, each with what it returns.
    fn time_blocks(
        &self,
        of: Function,
        stack: usize,
        calls: usize,
        asked: impl Fn(usize) -> (CallArguments, u64),
    ) -> Duration {
        let begin = cpu_time();
        for index in 0..calls {
            let (CallArguments(first, second), returned) = asked(index);
            self.ground.call(of, stack, [first, second, returned]);
        }
        cpu_time() - begin
    }

    fn enter(&mut self, kind: Kind, (with, without): (Duration, Duration), calls: usize) {
        let ns = (with.as_nanos() as f64 - without.as_nanos() as f64) / calls as f64;
        match self.differences.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, list)) => list.push(ns),
            None => self.differences.push((kind, vec![ns])),
        }
    }

    /// The price of each kind of which there are batches enough.
    pub(super) fn prices(&self) -> Vec<(Kind, Measured)> {
        let priced = self.differences.iter().filter_map(|(kind, batches)| {
            let price = Measured::of_batches(batches)?;
            // Noise can make a small difference negative.
            Some((*kind, Measured { ns: price.ns.max(0.0), ..price }))
        });
        priced.collect()
    }
}

/// With and without, in one order and in the other by turns.
fn in_turn<T>(round: usize, with: impl Fn() -> T, without: impl Fn() -> T) -> (T, T) {
    match round.is_multiple_of(2) {
        true => (with(), without()),
        false => {
            let without = without();
            (with(), without)
        }
    }
}
