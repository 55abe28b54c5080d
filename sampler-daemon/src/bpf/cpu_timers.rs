//! A timer on every CPU that runs a program when it interrupts the CPU in user mode. CPUs may come
//! and go.

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
}

/// The timer of one CPU.
struct Timer {
    counter: Counter,
    /// The timer's count at the last check.
    counted: u64,
}

impl CpuTimers {
    /// Starts a timer on each CPU.
    ///
    /// # Errors
    /// If perf_event_open(2) refuses.
    pub(super) fn new(program: BorrowedFd<'_>, period_ns: u64) -> anyhow::Result<CpuTimers> {
        let program = program.try_clone_to_owned().context("duplicate a program's descriptor")?;
        let mut new = CpuTimers { program, period_ns, timers: EachCpu::new() };
        new.follow(&[])?;
        Ok(new)
    }

    /// CPUs whose timers have not advanced since the last call. Such a CPU was offline meanwhile,
    /// and the kernel has ended its timer.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        self.timers.over(|timer| {
            // A timer that the kernel has ended has nothing to read any more.
            let counted = timer.counter.read().unwrap_or(timer.counted);
            let before = mem::replace(&mut timer.counted, counted);
            counted == before
        })
    }

    /// Makes timers on CPUs that have come online, and drops the timers of CPUs that are offline or
    /// in `gone`.
    ///
    /// # Errors
    /// If the CPUs cannot be listed, or perf_event_open(2) refuses for one of them. The other CPUs
    /// then have their timers.
    pub(super) fn follow(&mut self, gone: &[u32]) -> anyhow::Result<()> {
        let CpuTimers { program, period_ns, timers } = self;
        let timer = |cpu| {
            let counter = timer(program, *period_ns, cpu);
            let counter = counter.with_context(|| format!("make a timer on CPU {cpu}"))?;
            Ok(Timer { counter, counted: 0 })
        };
        timers.follow(&online()?, gone, timer).1
    }
}

fn timer(program: &OwnedFd, period_ns: u64, cpu: u32) -> io::Result<Counter> {
    let mut counter = Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu as usize)
        .exclude_kernel(true)
        .exclude_idle(true)
        .sample_period(period_ns)
        .build()?;
    counter.set_bpf(program.as_raw_fd())?;
    counter.enable()?;
    Ok(counter)
}
