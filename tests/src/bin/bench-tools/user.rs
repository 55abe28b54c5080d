//! A program's own time by ticks, those left out that fell due in a trap: as samplerd's clock of progress sees it.

use crate::scratch::{Scratch, bound, tail};
use crate::toolbox::allocator;
use anyhow::{Context, Result};
use sampler_common::wire::SPOT_BYTES;
use sampler_daemon::target::spots;
use sampler_tests::child::Child;
use std::fs::File;

/// From one tick to the next, microseconds.
const PERIOD_US: u32 = 500;
const SIGINT: i32 = 2;

/// Where a process's probes are, or would be.
///
/// # Errors
/// If its allocator is not found.
pub(crate) fn spots_of(pid: u32) -> Result<Vec<u64>> {
    Ok(spots::of_process(pid, &[allocator(pid)?], &[]))
}

/// bpftrace, counting ticks in the process's own code.
pub(crate) struct Counting {
    bpftrace: Child,
}

impl Counting {
    /// Counts from now on; not at these places.
    ///
    /// # Errors
    /// If bpftrace does not start.
    pub(crate) fn start(pid: u32, spots: &[u64], scratch: &Scratch) -> Result<Counting> {
        let behind = |spot: &u64| format!(" && ($ip < {spot} || $ip >= {})", spot + SPOT_BYTES);
        let elsewhere: String = spots.iter().map(behind).collect();
        let program = format!(
            "BEGIN {{ printf(\"counting\\n\"); }} \
             profile:us:{PERIOD_US} /pid == {pid}/ {{ $ip = reg(\"ip\"); \
             if ($ip > 0 && $ip < 0x7fffffffffff{elsewhere}) {{ @ticks = count(); }} }}"
        );
        let mut command = bound("/usr/bin/bpftrace", &[]);
        let log = scratch.path("bpftrace");
        command.args(["-q", "-e", &program]).stderr(File::create(&log).context("create a log")?);
        let mut bpftrace = Child::start("bpftrace", &mut command)?;
        loop {
            let line = bpftrace.line().with_context(|| format!("bpftrace: {}", tail(&log)))?;
            if line.contains("counting") {
                break;
            }
        }
        Ok(Counting { bpftrace })
    }

    /// The process's own time since then, nanoseconds.
    ///
    /// # Errors
    /// If bpftrace does not say.
    pub(crate) fn end(mut self) -> Result<f64> {
        self.bpftrace.signal(SIGINT)?;
        let ticks = loop {
            let line = self.bpftrace.line().context("bpftrace has counted nothing")?;
            if let Some(count) = line.strip_prefix("@ticks:") {
                break count.trim().parse::<f64>().context("a number of ticks")?;
            }
        };
        self.bpftrace.wait()?;
        Ok(ticks * f64::from(PERIOD_US) * 1e3)
    }
}
