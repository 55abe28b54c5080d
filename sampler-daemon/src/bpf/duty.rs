//! Clocks and gates of processes that have a budget (`DUTIES`), and what makes the clocks tick.

use super::cpu_timers::CpuTimers;
use super::sys::SharedMemory;
use super::ticks::{self, PAUSE};
use super::verifier;
use anyhow::Context as _;
use aya::Ebpf;
use aya::programs::PerfEvent;
use sampler_common::duty::{Budget, Clock, Lead, Steps, Ticks, Timers};
use sampler_common::wire::{Duty, Gate, MARKERS, Phase, SPOTS, UNKNOWN_TALLY, WORDS};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The map `DUTIES`, and the timers. Dropping it stops them.
pub struct Duties {
    memory: SharedMemory,
    timers: Timers,
    /// What their ticks take, and when that is looked at again.
    ticks: Ticks,
    next_look: Instant,
    /// They tick from the beginning on, as long as they are there.
    clock: CpuTimers,
    /// They tick while a window waits for them.
    fine: CpuTimers,
    /// When it is looked again which CPUs there are.
    next_cpus: Instant,
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
        let mut trial = CpuTimers::new(load(ebpf, "clock_tick_fine")?, TRIAL_NS)?;
        let ticks = ticks::first(&mut trial, TRIAL_NS);
        drop(trial);
        let timers = Timers::new(budget, ticks.ns(), ticks.error_ns());
        tracing::debug!(?timers, "what ticks cost");
        let fine = CpuTimers::new(load(ebpf, "clock_tick_fine")?, timers.fine_period_ns)?;
        let clock = CpuTimers::new(load(ebpf, "clock_tick")?, timers.period_ns)?;
        Ok(Duties {
            memory,
            timers,
            ticks,
            next_look: Instant::now() + PAUSE,
            clock,
            fine,
            next_cpus: Instant::now() + CPUS_PAUSE,
        })
    }

    /// Starts the clock of progress.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.clock.switch(true).context("start the clock of progress")
    }

    /// CPUs that have come, or were gone for a while, have their timers too, soon.
    pub fn follow_cpus(&mut self) {
        if Instant::now() < self.next_cpus {
            return;
        }
        self.next_cpus = Instant::now() + CPUS_PAUSE;
        let ended = self.clock.ended();
        if !ended.is_empty() {
            tracing::warn!(cpus = ?ended, "timers have ended and are made again");
        }
        for made in [self.clock.follow(&ended), self.fine.follow(&ended)] {
            if let Err(error) = made {
                tracing::warn!("{error:#}");
            }
        }
    }

    /// What they are.
    pub fn timers(&self) -> Timers {
        self.timers
    }

    /// Measures again what ticks take, where it is time to, or long has been. No window should be open: nobody looks after it meanwhile, for some 3 ms.
    pub fn look_at_ticks(&mut self, is_open: bool) {
        let due = if is_open { self.next_look + LONG } else { self.next_look };
        if self.fine.is_on() || Instant::now() < due {
            return;
        }
        ticks::look(&mut self.ticks, &mut self.fine, self.timers.fine_period_ns);
        self.timers = self.timers.with(self.ticks);
        self.next_look = Instant::now() + PAUSE;
        tracing::debug!(timers = ?self.timers, "what ticks cost");
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

    /// Whether a window is open, or about to open with its probes there.
    pub fn is_probed(&self, slot: u32) -> bool {
        matches!(self.gate(slot), Gate::Ready | Gate::Open)
    }

    /// What counts for a process goes on as long as this does: its clock, and ticks of the fine one before its window and in it.
    pub fn progress(&self, slot: u32) -> [u64; 3] {
        [offset_of!(Duty, clock), offset_of!(Duty, passed), offset_of!(Duty, left)]
            .map(|field| self.word(slot, field).load(SeqCst))
    }

    /// A process stands still in its window, or with its probes before it: nothing is seen until it goes on.
    pub fn sleep(&self, slot: u32) {
        self.go(slot, Gate::Open, Gate::Asleep);
        self.go(slot, Gate::Ready, Gate::ReadyAsleep);
    }

    /// It goes on, and so does its window, now that the fine clock does.
    pub fn wake(&self, slot: u32) {
        self.go(slot, Gate::Awake, Gate::Open);
        self.go(slot, Gate::ReadyAwake, Gate::Ready);
    }

    /// Moves the gate, if it stands there.
    fn go(&self, slot: u32, from: Gate, to: Gate) {
        let gate = self.word(slot, offset_of!(Duty, gate));
        // Elsewhere it is where the kernel side has moved it.
        let _ = gate.compare_exchange(from as u64, to as u64, SeqCst, SeqCst);
    }

    /// Whether the fine clock ticks.
    pub fn is_fine(&self) -> bool {
        self.fine.is_on()
    }

    /// What the clock shows.
    pub fn clock(&self, slot: u32) -> Clock {
        let read = |field| self.word(slot, field).load(SeqCst);
        Clock { ticks: read(offset_of!(Duty, clock)), beside: read(offset_of!(Duty, beside)) }
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

    /// A window is about to be attached; of the fine clock it will begin with the tick of this number from now on.
    pub fn lead(&mut self, slot: u32, lead: u64, fine: bool) {
        self.word(slot, offset_of!(Duty, passed)).store(0, SeqCst);
        self.word(slot, offset_of!(Duty, lead)).store(lead, SeqCst);
        self.word(slot, offset_of!(Duty, fine)).store(u64::from(fine), SeqCst);
        if fine {
            self.set_fine(true);
        }
    }

    /// The gate is due: the fine clock counts from now on what passes before the window.
    pub fn come(&self, slot: u32) {
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Due as u64, SeqCst);
    }

    /// Calls of markers are counted from 0 on while the gate is open, which closes with so many.
    pub fn begin_marks(&self, slot: u32, most: i64) {
        (0..MARKERS).for_each(|number| self.mark(slot, number).store(0, SeqCst));
        self.word(slot, offset_of!(Duty, marks_left)).store(most as u64, SeqCst);
    }

    /// Calls of each marker since then, and whether these were as many as there may be.
    pub fn marks(&self, slot: u32) -> ([u64; MARKERS], bool) {
        let left = self.word(slot, offset_of!(Duty, marks_left)).load(SeqCst) as i64;
        (std::array::from_fn(|number| self.mark(slot, number).load(SeqCst)), left <= 0)
    }

    /// What the process had read and written when the gate opened last, and when it closed.
    pub fn traffic(&self, slot: u32) -> [u64; 2] {
        [offset_of!(Duty, opened), offset_of!(Duty, closed)]
            .map(|field| self.word(slot, field).load(SeqCst))
    }

    /// What each of its words was when the gate opened last, and when it closed.
    pub fn words(&self, slot: u32) -> [[u64; 2]; WORDS] {
        let ends = [offset_of!(Duty, words_opened), offset_of!(Duty, words_closed)];
        std::array::from_fn(|number| {
            ends.map(|field| self.word(slot, field + number * size_of::<u64>()).load(SeqCst))
        })
    }

    /// Where words of its memory are that count its work; what was read by then of others is of none.
    pub fn set_words(&self, slot: u32, at: &[u64]) {
        for number in 0..WORDS {
            let word = |field| self.word(slot, field + number * size_of::<u64>());
            let at = at.get(number).copied().unwrap_or(0);
            if word(offset_of!(Duty, words)).swap(at, SeqCst) != at {
                word(offset_of!(Duty, words_opened)).store(UNKNOWN_TALLY, SeqCst);
                word(offset_of!(Duty, words_closed)).store(UNKNOWN_TALLY, SeqCst);
            }
        }
    }

    /// Ticks that are left of the window, or of the count before it.
    pub fn left(&self, slot: u32) -> u64 {
        // Several CPUs may have come past its end.
        (self.word(slot, offset_of!(Duty, left)).load(SeqCst) as i64).max(0) as u64
    }

    fn mark(&self, slot: u32, number: usize) -> &AtomicU64 {
        self.word(slot, offset_of!(Duty, marks) + number * size_of::<u64>())
    }

    /// The window may begin, to have so many ticks, and to begin and end at steps of the word there, if any; how many have passed by now. One of the other clock begins with the next.
    pub fn ready(&self, slot: u32, ticks: u64, fine: bool, step_at: Option<u64>) -> u64 {
        let passed = self.word(slot, offset_of!(Duty, passed));
        if !fine {
            passed.store(0, SeqCst);
            self.word(slot, offset_of!(Duty, lead)).store(1, SeqCst);
        }
        let passed = passed.load(SeqCst);
        // However soon the probes were there this time.
        let latest = passed + Lead::longest_wait(ticks);
        self.word(slot, offset_of!(Duty, lead)).fetch_min(latest, SeqCst);
        let set = |field, to: u64| self.word(slot, field).store(to, SeqCst);
        set(offset_of!(Duty, left), ticks);
        set(offset_of!(Duty, left_first), ticks);
        set(offset_of!(Duty, step_at), step_at.unwrap_or(0));
        set(offset_of!(Duty, phase), Phase::Seen as u64);
        self.word(slot, offset_of!(Duty, gate)).store(Gate::Ready as u64, SeqCst);
        passed
    }

    /// How the window has gone that was to have so many ticks, and whose ends waited for steps.
    pub fn steps(&self, slot: u32, ticks: u64) -> Steps {
        let read = |field| self.word(slot, field).load(SeqCst);
        let left = read(offset_of!(Duty, left)) as i64;
        let first = read(offset_of!(Duty, left_first)) as i64;
        let since = |from: i64| from.saturating_sub(left).max(0) as u64;
        let has_begun = read(offset_of!(Duty, phase)) != Phase::Begins as u64;
        let seen = if has_begun { since(first) } else { 0 };
        Steps { lasted: since(ticks as i64), seen, ends: read(offset_of!(Duty, steps)) }
    }

    /// How many ticks too late the window began that is open, or was last.
    pub fn late(&self, slot: u32) -> u64 {
        let read = |field| self.word(slot, field).load(SeqCst);
        read(offset_of!(Duty, passed)).saturating_sub(read(offset_of!(Duty, lead)))
    }

    /// Lets the fine clock tick, or stops it.
    pub fn set_fine(&mut self, on: bool) {
        if self.fine.is_on() == on {
            return;
        }
        if let Err(error) = self.fine.switch(on) {
            tracing::warn!("switch a timer: {error}");
        }
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

/// Period of the timers by which the cost of ticks is measured first.
const TRIAL_NS: u64 = 200_300;
/// Windows that are open, or those whose processes sleep, put looks off for so long.
const LONG: Duration = Duration::from_secs(20);
/// How often it is looked which CPUs there are.
const CPUS_PAUSE: Duration = Duration::from_secs(1);
