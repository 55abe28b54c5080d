//! Batches of calls, with and without a probe.

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

/// Calls in a batch of emulated, single-stepped and followed calls.
const EMULATED_CALLS: usize = 32;
const STEPPED_CALLS: usize = 4;
const FOLLOWED_CALLS: usize = 16;
/// Calls of a batch with other work between them.
const DISTURBED_CALLS: usize = 15;
/// Bytes that the other work reads: more than any first-level cache, and less than a second-level
/// one.
const OTHER_DATA: usize = 512 * 1024;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Samples in a batch, if the ring has room for them.
const SAMPLED_CALLS: usize = 4;
/// A batch takes at most one of so many parts of the ring.
const RING_PART: usize = 4;

/// Requested bytes of calls that are not followed.
const SMALL_REQUEST_BYTES: u64 = 64;
/// Bytes of stack of the sampled calls. Each tier gets a stack that nearly fills it, as real stacks
/// do; the first tier gets a short one too.
const STACKS: [usize; 6] = [1024, 3584, 7168, 14_336, 28_672, 57_344];
/// Bytes of stack above calls that are not sampled.
const NO_STACK: usize = 1024;
/// First address of the blocks that the functions pretend to return.
const BLOCKS: u64 = 0x1000;

/// An operation that has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A hit: the program, and whether the instruction is single-stepped.
    Hit(Program, bool),
    /// The additional cost of a hit if caches are emptied between hits, in the kernel and in the
    /// program together.
    ColdCache,
    /// Following a call to its return.
    Returned,
    /// A sample with this number of bytes of stack, in addition to following the call.
    Sampled(usize),
    /// The free of a sampled block, in addition to the hit.
    Ended,
}

/// CPU time of this thread.
pub(super) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Differences between the two batches of each pair, by kind, in nanoseconds per call.
pub(super) struct Batches<'a> {
    ground: &'a Ground,
    settings: &'a Settings,
    slot: u32,
    differences: Vec<(Kind, Vec<f64>)>,
    /// Memory that stands for the program's other work between two hits.
    other_data: Vec<u8>,
}

/// Reads a byte of every cache line.
fn touch(data: &[u8]) {
    let sum = data.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

/// The first two arguments of a call.
#[derive(Clone, Copy)]
struct CallArguments(u64, u64);

impl<'a> Batches<'a> {
    pub(super) fn new(ground: &'a Ground, settings: &'a Settings, slot: u32) -> Batches<'a> {
        let other_data = vec![1; OTHER_DATA];
        Batches { ground, settings, slot, differences: Vec::new(), other_data }
    }

    /// Runs one pair of batches of each kind. Rounds of later measurements omit kinds that take
    /// long or send records.
    pub(super) fn round(&mut self, kernel: &mut Kernel, round: usize, is_first: bool) {
        self.sample(kernel, false);
        let uses_usdt = kernel.usdt.is_some();
        let hits = hits(self.settings.track_live);
        for (program, stepped) in hits.filter(|(of, _)| uses_usdt || !of.is_usdt()) {
            let calls = if stepped { STEPPED_CALLS } else { EMULATED_CALLS };
            // calloc(1, n), malloc(n), free(p), alloc(p, 0, …): an alloc of 0 bytes is not a
            // sample.
            let arguments = match program {
                Program::Sized => CallArguments(1, SMALL_REQUEST_BYTES),
                _ => CallArguments(SMALL_REQUEST_BYTES, 0),
            };
            let batch = |of| self.time(of, NO_STACK, calls, |_| arguments);
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
            self.cold_cache(round);
            for stack in self.stacks() {
                self.sampled(kernel, stack);
            }
        }
    }

    /// Times hits with other work around them against hits without such work. The work takes much
    /// longer than a hit, so each call is timed by itself, by wall-clock time. The time includes
    /// the work after the call, which finds fewer of its data in the caches. The median of a
    /// batch's calls ignores interruptions.
    fn cold_cache(&mut self, round: usize) {
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
        self.enter(Kind::ColdCache, (pair.0 + still.1, pair.1 + still.0), 1);
    }

    /// The stack sizes to measure; with frame pointers only one, since the size then does not
    /// matter.
    fn stacks(&self) -> Vec<usize> {
        let largest = match self.settings.frame_pointers {
            true => STACKS[0],
            false => self.settings.snapshot_bytes as usize,
        };
        STACKS.into_iter().filter(|bytes| *bytes <= largest).collect()
    }

    /// Measures samples against followed calls, and frees of sampled blocks against frees of other
    /// blocks.
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

    /// Sets whether every call is sampled from now on, or practically none: with a hazard of 2⁻⁴⁸
    /// per byte.
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
        arguments: impl Fn(usize) -> CallArguments,
    ) -> Duration {
        self.time_blocks(of, stack, calls, |index| (arguments(index), BLOCKS))
    }

    /// CPU time of some calls; `arguments` gives the arguments and the result of each.
    fn time_blocks(
        &self,
        of: Function,
        stack: usize,
        calls: usize,
        arguments: impl Fn(usize) -> (CallArguments, u64),
    ) -> Duration {
        let begin = cpu_time();
        for index in 0..calls {
            let (CallArguments(first, second), returned) = arguments(index);
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

    /// The price of each kind that has enough batches.
    pub(super) fn prices(&self) -> Vec<(Kind, Measured)> {
        let priced = self.differences.iter().filter_map(|(kind, batches)| {
            let price = Measured::of_batches(batches)?;
            // Noise can make a small difference negative.
            Some((*kind, Measured { ns: price.ns.max(0.0), ..price }))
        });
        priced.collect()
    }
}

/// Runs both batches; the order alternates with the rounds.
fn in_turn<T>(round: usize, with: impl Fn() -> T, without: impl Fn() -> T) -> (T, T) {
    match round.is_multiple_of(2) {
        true => (with(), without()),
        false => {
            let without = without();
            (with(), without)
        }
    }
}
