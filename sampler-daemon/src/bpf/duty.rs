//! Clocks and gates of processes that have a budget (`DUTIES`), and what makes the clocks tick.

use super::calibrate::cpu_time;
use super::sys::SharedMemory;
use super::verifier;
use anyhow::Context as _;
use aya::Ebpf;
use aya::programs::PerfEvent;
use perf_event::events::Software;
use perf_event::{Builder, Counter};
use sampler_common::duty::{Budget, Timers};
use sampler_common::wire::{Duty, Gate, SPOTS};
use std::hint::black_box;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What a clock shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Ticks in the process's own code.
    pub ticks: u64,
    /// Ticks that do not count.
    pub skipped: u64,
}

/// The map `DUTIES`, and the timers. Dropping it stops them.
pub struct Duties {
    memory: SharedMemory,
    timers: Timers,
    /// They tick from the beginning on, as long as they are there.
    clock: Vec<Counter>,
    /// They tick while a window waits for them.
    fine: Vec<Counter>,
    is_fine: bool,
}

impl Duties {
    /// Maps it, measures what ticks cost, and makes a timer on every CPU.
    ///
    /// # Errors
    /// If perf_event_open(2) refuses.
    pub(super) fn start(
        ebpf: &mut Ebpf,
        map: BorrowedFd<'_>,
        slots: u32,
        budget: Budget,
    ) -> anyhow::Result<Duties> {
        const PAGE: usize = 4096;
        let bytes = (slots as usize * size_of::<Duty>()).div_ceil(PAGE) * PAGE;
        let memory = SharedMemory::map(map, bytes, 0, true).context("map DUTIES")?;
        let (tick_ns, error_ns) = {
            let mut trial = make(load(ebpf, "clock_tick_fine")?, TRIAL_NS)?;
            cost_of_ticks(&mut trial)
        };
        let timers = Timers::new(budget, tick_ns, error_ns);
        tracing::debug!(?timers, "what ticks cost");
        let fine = make(load(ebpf, "clock_tick_fine")?, timers.fine_period_ns)?;
        let clock = make(load(ebpf, "clock_tick")?, timers.period_ns)?;
        Ok(Duties { memory, timers, clock, fine, is_fine: false })
    }

    /// Starts the clock of progress.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.clock.iter_mut().try_for_each(Counter::enable).context("start the clock of progress")
    }

    /// What they are.
    pub fn timers(&self) -> Timers {
        self.timers
    }

    fn word(&self, slot: u32, field: usize) -> &AtomicU64 {
        self.memory.atomic_u64(slot as usize * size_of::<Duty>() + field)
    }

    /// For another process: its clock shows 0, and its gate is shut.
    pub fn reset(&self, slot: u32) {
        (0..size_of::<Duty>()).step_by(8).for_each(|field| self.word(slot, field).store(0, SeqCst));
    }

    /// Where the gate stands.
    pub fn gate(&self, slot: u32) -> Gate {
        Gate::from_number(self.word(slot, offset_of!(Duty, gate)).load(SeqCst))
    }

    /// What the clock shows.
    pub fn clock(&self, slot: u32) -> Clock {
        let read = |field| self.word(slot, field).load(SeqCst);
        Clock { ticks: read(offset_of!(Duty, clock)), skipped: read(offset_of!(Duty, skipped)) }
    }

    /// Nothing more is seen. A window that is open does not end by itself any more.
    pub fn shut(&self, slot: u32) {
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Shut as u64, SeqCst);
    }

    /// The daemon is to be told at this tick.
    pub fn wait_for(&self, slot: u32, due: u64) {
        self.word(slot, offset_of!(Duty, due)).store(due, SeqCst);
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Waiting as u64, SeqCst);
    }

    /// A window of so many ticks, of the fine clock or of the other, begins with the next one.
    pub fn ready(&self, slot: u32, ticks: u64, fine: bool) {
        self.word(slot, offset_of!(Duty, left)).store(ticks, SeqCst);
        self.word(slot, offset_of!(Duty, fine)).store(u64::from(fine), SeqCst);
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Ready as u64, SeqCst);
    }

    /// Lets the fine clock tick, or stops it.
    pub fn set_fine(&mut self, on: bool) {
        if self.is_fine == on {
            return;
        }
        self.is_fine = on;
        switch(&mut self.fine, on);
    }

    /// Leaves the gate of a slot open whose process has no clock.
    pub fn open(&self, slot: u32) {
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Open as u64, SeqCst);
    }

    /// Where probes are: ticks there do not count.
    pub fn set_spots(&self, slot: u32, spots: &[u64]) {
        for at in 0..SPOTS {
            let spot = spots.get(at).copied().unwrap_or(0);
            self.word(slot, offset_of!(Duty, spots) + at * 8).store(spot, SeqCst);
        }
    }
}

/// Loads one of the two programs, once.
fn load<'a>(ebpf: &'a mut Ebpf, name: &str) -> anyhow::Result<BorrowedFd<'a>> {
    let program: &mut PerfEvent = ebpf
        .program_mut(name)
        .with_context(|| format!("program {name} is not in the eBPF object"))?
        .try_into()?;
    if program.fd().is_err() {
        program.load().with_context(|| format!("load the eBPF program {name}"))?;
        verifier::note(name, program.fd()?.as_fd());
    }
    Ok(program.fd()?.as_fd())
}

/// Timers on all CPUs that run a program when they find the CPU in user mode; they do not tick yet.
fn make(program: BorrowedFd<'_>, period_ns: u64) -> anyhow::Result<Vec<Counter>> {
    let cpus = aya::util::online_cpus()
        .map_err(|(path, error)| anyhow::anyhow!("read {path}: {error}"))?;
    let timer = |cpu: u32| {
        let made = timer(cpu as usize, program, period_ns);
        made.with_context(|| format!("make a timer on CPU {cpu}"))
    };
    cpus.into_iter().map(timer).collect()
}

fn switch(timers: &mut [Counter], on: bool) {
    for timer in timers {
        let done = if on { timer.enable() } else { timer.disable() };
        if let Err(error) = done {
            tracing::warn!("switch a timer: {error}");
        }
    }
}

/// Period of the timers by which the cost of ticks is measured.
const TRIAL_NS: u64 = 200_300;
/// Times that the same work is done, with ticks and without.
const TRIALS: usize = 25;
/// Steps of that work: two or three milliseconds.
const STEPS: u64 = 1_000_000;

/// What a tick takes of this thread's CPU time, and its standard error, nanoseconds: the same work takes longer by its ticks.
fn cost_of_ticks(timers: &mut [Counter]) -> (f64, f64) {
    let mut took = [Vec::with_capacity(TRIALS), Vec::with_capacity(TRIALS)];
    for trial in 0..TRIALS {
        // Each way first in turn: what a machine does meanwhile falls on both.
        for on in [trial % 2 == 0, trial % 2 == 1] {
            switch(timers, on);
            took[usize::from(on)].push(work());
        }
    }
    switch(timers, false);
    took.iter_mut().for_each(|of| of.sort_by(f64::total_cmp));
    let [off, on] = took;
    // Neighbours make work dearer and never cheaper: of each way the cheap ones are compared, those of one rank with each other.
    let ranks = 1..=TRIALS / 3;
    let costs: Vec<f64> =
        ranks.map(|rank| (on[rank] - off[rank]) / (on[rank] / TRIAL_NS as f64)).collect();
    let n = costs.len() as f64;
    let mean = costs.iter().sum::<f64>() / n;
    let squares: f64 = costs.iter().map(|cost| (cost - mean).powi(2)).sum();
    // Neighbouring ranks are not independent, and a tick is dearer on a busy machine: no less than a seventh is left open.
    (mean.max(0.0), (squares / (n - 1.0)).sqrt().max(0.15 * mean))
}

/// CPU time that a chain of multiplications takes, nanoseconds.
fn work() -> f64 {
    let before = cpu_time();
    let mut value = 1u64;
    for _ in 0..STEPS {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    black_box(value);
    (cpu_time() - before).as_nanos() as f64
}

fn timer(cpu: usize, program: BorrowedFd<'_>, period_ns: u64) -> io::Result<Counter> {
    let mut counter = Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu)
        .exclude_kernel(true)
        .exclude_idle(true)
        .sample_period(period_ns)
        .build()?;
    counter.set_bpf(program.as_raw_fd())?;
    Ok(counter)
}
