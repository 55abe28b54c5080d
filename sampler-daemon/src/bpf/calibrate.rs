//! Measures the prices of hits and samples on this machine: on functions of the daemon's own, with
//! the programs and the engine in use.
//!
//! Every probed function has a twin without a probe. Batches of calls of the two alternate. The
//! clock is this thread's CPU time, so that neither waiting nor other processes count. A price is
//! the median of the differences of many rounds.
//!
//! The hits are counted in a process slot of their own, which is in no list. Their records are read
//! and dropped here.

use super::kernel::{Kernel, Settings};
use super::link::Points;
use super::sys::ground::{Function, Ground};
use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use sampler_common::cost::{Measured, Tariff};
use sampler_common::limits::{CLASSES, FOLLOW_BYTES};
use sampler_common::sampling::{Design, Rate, Strategy};
use sampler_common::wire::{AllocationRecord, Cookie, Role, SHARED};
use std::time::Duration;

/// CPU time after which no further round begins.
pub const MAX_CPU_TIME: Duration = Duration::from_millis(100);
/// Maximum number of rounds. A round has batches of each kind.
const ROUNDS: usize = 25;
/// Calls in a batch of emulated, single-stepped and followed calls.
const EMULATED_CALLS: usize = 16;
const STEPPED_CALLS: usize = 4;
const FOLLOWED_CALLS: usize = 8;
/// Samples in a batch, if the ring has room for them.
const SAMPLED_CALLS: usize = 4;
/// A batch takes at most one of so many parts of the ring.
const RING_PART: usize = 4;
/// Bytes that other work reads before every second call: more than any first-level cache.
const OTHER_DATA: usize = 128 * 1024;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Requested bytes of calls that are not followed.
const SMALL_REQUEST_BYTES: u64 = 64;
/// Bytes of stack of sampled calls with a short and with a long stack.
const STACKS: [usize; 2] = [1024, 57_344];
/// First address of the blocks that the functions pretend to return.
const BLOCKS: u64 = 0x1000;

/// The functions that stand for `malloc` and `free`.
const MALLOC: usize = 0;
const FREE: usize = 1;
const _: () = assert!(Function::COUNT == 8, "two functions, two placements, with and without");

/// The probed function, and its twin without a probe.
fn twins(function: usize, is_stepped: bool) -> [Function; 2] {
    let probed = 2 * function + usize::from(is_stepped);
    [Function(probed), Function(Function::COUNT / 2 + probed)]
}

/// Measures the prices. The ring must hold no other records, since this function drops what it
/// reads. `is_by_pid`: processes are looked up by pid, as for shared links. The caller excludes
/// this process again.
///
/// Returns the prices, and the CPU time that was used.
///
/// # Errors
/// If the kernel refuses a file of executable memory, or the probes in it, or if the maps cannot be
/// written.
pub fn measure(
    kernel: &mut Kernel,
    settings: &Settings,
    is_by_pid: bool,
) -> anyhow::Result<(Tariff, Duration)> {
    let ground = Ground::new().context("make functions to calibrate on")?;
    let (slot, pid) = (kernel.calibration_slot(), std::process::id());
    kernel.totals.reset(slot)?;
    let points = points(if is_by_pid { SHARED } else { slot }, settings.track_live);
    let _links = kernel.attach(ground.file(), Some(pid), &points)?;
    if is_by_pid {
        kernel.targets.enter(pid, slot)?;
    }
    // The kernel then knows where the calibration's stack ends, as for other programs' stacks.
    let _first_stack = ground.as_first_stack();
    let begin = cpu_time();
    let mut batches = Batches::new(&ground, settings, slot);
    for _ in 0..ROUNDS {
        batches.round(kernel);
        if cpu_time() - begin >= MAX_CPU_TIME {
            break;
        }
    }
    Ok((batches.tariff(), cpu_time() - begin))
}

/// Probes on the functions; the calling process has `slot`. Without frees, `free` stands for a
/// function of which only the entry is probed.
fn points(slot: u32, track_live: bool) -> Points {
    let entered = if track_live { Role::Free } else { Role::New };
    let both = |function, role| {
        [false, true].map(|is_stepped| {
            let [probed, _] = twins(function, is_stepped);
            (probed.offset() as u64, Cookie::new(slot, role).placed(!is_stepped).0)
        })
    };
    let mut points = Points { allocating: both(MALLOC, Role::Malloc).into(), ..Points::default() };
    let list = if track_live { &mut points.freeing } else { &mut points.entering };
    list.extend(both(FREE, entered));
    points
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Reads a byte of every cache line.
fn touch(data: &[u8]) {
    let sum = data.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

/// Nanoseconds by which a call with a probe, or with a sample, took longer: one difference for each
/// round, for each price of a [`Tariff`].
struct Batches<'a> {
    ground: &'a Ground,
    settings: &'a Settings,
    slot: u32,
    /// Memory that stands for the program's other work.
    other_data: Vec<u8>,
    hits: [[Vec<f64>; 2]; 2],
    return_probe: Vec<f64>,
    /// Samples with a short stack.
    sampled: Vec<f64>,
    stack_kib: Vec<f64>,
}

impl<'a> Batches<'a> {
    fn new(ground: &'a Ground, settings: &'a Settings, slot: u32) -> Batches<'a> {
        let [return_probe, sampled, stack_kib] = Default::default();
        let (other_data, hits) = (vec![1; OTHER_DATA], Default::default());
        Batches { ground, settings, slot, other_data, hits, return_probe, sampled, stack_kib }
    }

    /// The price of each kind that has enough batches. Noise can make a small difference negative.
    fn tariff(&self) -> Tariff {
        let price = |batches: &Vec<f64>| {
            let price = Measured::of_batches(batches)?;
            Some(Measured { ns: price.ns.max(0.0), ..price })
        };
        Tariff {
            hits: self.hits.each_ref().map(|placed| placed.each_ref().map(price)),
            return_probe: price(&self.return_probe),
            sampled: price(&self.sampled),
            stack_kib: price(&self.stack_kib),
        }
    }

    /// Runs batches of each kind.
    fn round(&mut self, kernel: &mut Kernel) {
        self.sample(kernel, false);
        for function in [MALLOC, FREE] {
            for is_stepped in [false, true] {
                let calls = if is_stepped { STEPPED_CALLS } else { EMULATED_CALLS };
                let [probed, twin] = twins(function, is_stepped);
                let hit = difference(calls, |is_probed| {
                    self.time(if is_probed { probed } else { twin }, calls, SMALL_REQUEST_BYTES)
                });
                self.hits[function][usize::from(is_stepped)].push(hit);
            }
        }
        let returned = difference(FOLLOWED_CALLS, |is_followed| {
            let bytes = if is_followed { FOLLOW_BYTES } else { SMALL_REQUEST_BYTES };
            self.time(twins(MALLOC, false)[0], FOLLOWED_CALLS, bytes)
        });
        self.return_probe.push(returned);
        let [short, long] = STACKS;
        let Some(sample) = self.sampled(kernel, short) else { return };
        self.sampled.push(sample);
        let long = long.min(self.settings.snapshot_bytes as usize / 8 * 7);
        // With frame pointers no stack is copied.
        if !self.settings.frame_pointers
            && long > short
            && let Some(larger) = self.sampled(kernel, long)
        {
            self.stack_kib.push((larger - sample) * 1024.0 / (long - short) as f64);
        }
    }

    /// Compares calls whose samples have `stack` bytes of stack with calls without samples. Each
    /// block is freed. `None` if the ring has no room for samples.
    fn sampled(&self, kernel: &mut Kernel, stack: usize) -> Option<f64> {
        let record = (size_of::<AllocationRecord>() + stack.next_power_of_two().max(4096)) * 2;
        let calls = SAMPLED_CALLS.min(self.settings.ring_bytes as usize / RING_PART / record);
        let [malloc, free] = [MALLOC, FREE].map(|function| twins(function, false)[0]);
        let sample = difference(calls, |is_sampled| {
            self.sample(kernel, is_sampled);
            let begin = cpu_time();
            for block in (BLOCKS..).step_by(64).take(calls) {
                self.ground.call(malloc, stack, [SMALL_REQUEST_BYTES, 0, block]);
                if self.settings.track_live {
                    self.ground.call(free, stack, [block, 0, 0]);
                }
            }
            cpu_time() - begin
        });
        let until = kernel.ring.produced();
        kernel.ring.read(usize::MAX, until, |_| {});
        (calls > 0).then_some(sample)
    }

    /// Sets whether every call is sampled from now on, or practically none: with a hazard of 2⁻⁴⁸
    /// per byte.
    fn sample(&self, kernel: &mut Kernel, all: bool) {
        let rate = if all { Rate::ALWAYS } else { Rate::from_raw(1) };
        let design = Design::new(Strategy::Geometric, rate);
        kernel.slots.set_designs(self.slot, &[design; CLASSES]);
    }

    /// CPU time of some calls. Half of them find the first-level caches empty: a real program lies
    /// between a loop of nothing but calls and one that empties its caches between any two.
    fn time(&self, of: Function, calls: usize, bytes: u64) -> Duration {
        let begin = cpu_time();
        for call in 0..calls {
            if call % 2 == 0 {
                touch(&self.other_data);
            }
            self.ground.call(of, STACKS[0], [bytes, 0, BLOCKS]);
        }
        cpu_time() - begin
    }
}

/// Nanoseconds per call by which a batch takes longer if its argument is true. The order is true,
/// false, false, true, so that a drift of the machine's speed cancels out.
fn difference(calls: usize, mut batch: impl FnMut(bool) -> Duration) -> f64 {
    let [a, b, c, d] = [true, false, false, true].map(|of| batch(of).as_nanos() as f64);
    (a + d - b - c) / (2 * calls.max(1)) as f64
}
