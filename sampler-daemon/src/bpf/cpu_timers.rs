//! A timer on every CPU that runs a program when it finds the CPU in user mode; CPUs come and go.

use super::each_cpu::{EachCpu, online};
use anyhow::Context as _;
use perf_event::events::Software;
use perf_event::{Builder, Counter};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

/// The timers. Dropping them stops them.
pub(super) struct CpuTimers {
    program: OwnedFd,
    period_ns: u64,
    timers: EachCpu<Timer>,
    is_on: bool,
}

/// One of them.
struct Timer {
    counter: Counter,
    /// What it counted when it was looked at last.
    counted: u64,
}

impl CpuTimers {
    /// On all CPUs that are there; they do not tick yet.
    ///
    /// # Errors
    /// If perf_event_open(2) refuses.
    pub(super) fn new(program: BorrowedFd<'_>, period_ns: u64) -> anyhow::Result<CpuTimers> {
        let program = program.try_clone_to_owned().context("duplicate a program's descriptor")?;
        let mut new = CpuTimers { program, period_ns, timers: EachCpu::new(), is_on: false };
        new.follow(&[])?;
        Ok(new)
    }

    /// CPUs whose timers stand still since they were looked at last, while they are to tick: those CPUs were gone in between, and the kernel has ended what was there.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        let is_on = self.is_on;
        self.timers.over(|timer| {
            // One that the kernel has ended has nothing to read any more.
            let counted = timer.counter.read().unwrap_or(timer.counted);
            let before = mem::replace(&mut timer.counted, counted);
            is_on && counted == before
        })
    }

    /// Makes timers on CPUs that have come, and forgets those of CPUs that are gone or have been.
    ///
    /// # Errors
    /// If the CPUs cannot be listed, or perf_event_open(2) refuses for one of them; the others have theirs.
    pub(super) fn follow(&mut self, gone: &[u32]) -> anyhow::Result<()> {
        let CpuTimers { program, period_ns, timers, is_on } = self;
        let timer = |cpu| {
            let counter = timer(program, *period_ns, *is_on, cpu);
            let counter = counter.with_context(|| format!("make a timer on CPU {cpu}"))?;
            Ok(Timer { counter, counted: 0 })
        };
        timers.follow(&online()?, gone, timer).1
    }

    /// Whether they tick.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Lets them tick, or stops them.
    ///
    /// # Errors
    /// If the kernel refuses, for one of them; the others are switched.
    pub(super) fn switch(&mut self, on: bool) -> io::Result<()> {
        self.is_on = on;
        let switch = |Timer { counter, .. }: &mut Timer| match on {
            true => counter.enable(),
            false => counter.disable(),
        };
        self.timers.iter_mut().map(switch).fold(Ok(()), Result::and)
    }
}

fn timer(program: &OwnedFd, period_ns: u64, is_on: bool, cpu: u32) -> io::Result<Counter> {
    let mut counter = Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu as usize)
        .exclude_kernel(true)
        .exclude_idle(true)
        .sample_period(period_ns)
        .build()?;
    counter.set_bpf(program.as_raw_fd())?;
    if is_on {
        counter.enable()?;
    }
    Ok(counter)
}
