//! Back-pressure: processes are sampled more rarely than requested if samples exceed a limit per
//! second. One limit holds for each process, another for the daemon (all processes together).
//!
//! Plainly: each process, and the daemon, has a bucket of samples that fills at its limit and holds
//! a quarter of a second of it. Every sample takes one out. When a process's bucket is empty, its
//! interval is raised at once by the ratio of rate to limit, and a third more. When the daemon's
//! bucket is empty, only processes with more than their share are raised (max-min fairness). After
//! a storm, the interval falls by a factor of √2 every quarter of a second: a factor of 1,000 takes
//! 5 s. It falls only if the expected rate stays clear of the limit.
//!
//! A sample counts for as many samples as would come at the current rate: the probability that it
//! would be sampled now, divided by the probability with which it was sampled. So samples that are
//! still in the ring buffer from before the raise do not raise again. Samples that ring
//! pressure ([`crate::sampling::ring_pressure`]) has held back count as if they had come.
//!
//! The decisions depend on past samples and act on later calls, each of which is weighted by its
//! own probability: estimates stay unbiased.

mod bucket;
mod process;
mod share;

pub use process::{Cause, MAX_STEPS, Raised};
pub use share::share;

use crate::limits::LIBRARY_PER_SECOND;
use bucket::Bucket;
use process::Process;
use std::collections::BTreeMap;

/// Share of a limit that a raise aims at.
const TARGET_SHARE: f64 = 0.75;
/// The text for no limit, on a command line.
const UNLIMITED: &str = "unlimited";
/// Fewest samples in one turn that give a meaningful rate.
const MIN_SAMPLES_FOR_RATE: f64 = 30.0;

/// Most samples per second; infinite: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Limit of all processes together.
    pub daemon: f64,
    /// Limit of each process.
    pub process: f64,
    /// Limit of each process that has our library in it, if it is less. The library enforces it.
    pub library: f64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits =
        Limits { daemon: f64::INFINITY, process: f64::INFINITY, library: f64::INFINITY };

    /// The limit of a command line: samples per second, or `unlimited`.
    ///
    /// # Errors
    /// The text is neither a number from 1 to a million nor `unlimited`: a line with what it must
    /// be.
    pub fn parse(text: &str) -> Result<f64, String> {
        match text.parse() {
            _ if text == UNLIMITED => Ok(f64::INFINITY),
            Ok(samples) if (1.0..=1e6).contains(&samples) => Ok(samples),
            _ => Err(format!("must be 1 to 1000000 samples, or {UNLIMITED}")),
        }
    }

    /// The limit as written on a command line.
    pub fn text(limit: f64) -> String {
        if limit.is_finite() { limit.to_string() } else { UNLIMITED.to_owned() }
    }

    /// Limit of a process with our library in it. The library enforces the limit by itself
    /// ([`crate::sampling::token_bucket`]). Without any other limit, the limit is the most that the
    /// library may send.
    pub fn of_library(&self) -> f64 {
        self.process.min(self.library).min(LIBRARY_PER_SECOND as f64)
    }
}

/// The raised intervals of all processes, by a number that the caller assigns.
#[derive(Clone, Debug)]
pub struct Pressure {
    limits: Limits,
    all: Bucket,
    processes: BTreeMap<u32, Process>,
}

impl Pressure {
    /// No interval is raised.
    pub fn new(limits: Limits) -> Pressure {
        Pressure { limits, all: Bucket::new(limits.daemon), processes: BTreeMap::new() }
    }

    /// Records a sample of `process` that stands for `expected` samples at the current rate.
    ///
    /// A process with our library in it enforces its own limit ([`Limits::of_library`]), and has a
    /// share of the daemon's limit.
    pub fn take(&mut self, process: u32, expected: f64, has_library: bool) {
        let limit = if has_library { f64::INFINITY } else { self.limits.process };
        let process = self.processes.entry(process).or_insert_with(|| Process::new(limit));
        process.limit_to(limit);
        process.take(expected);
        self.all.take(expected);
    }

    /// Forgets a process that is gone, or whose interval somebody has changed.
    pub fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// How far a process's interval is raised.
    pub fn raised(&self, process: u32) -> Raised {
        self.processes.get(&process).map(|of| of.raised).unwrap_or_default()
    }

    /// One turn, `elapsed` seconds after the last one; `now_ns` is any clock. Returns the processes
    /// whose interval changes.
    pub fn turn(&mut self, elapsed: f64, now_ns: u64) -> Vec<u32> {
        if elapsed <= 0.0 {
            return Vec::new();
        }
        self.all.fill(elapsed);
        self.processes.values_mut().for_each(|process| process.measure(elapsed));
        let mut changed = self.raise(now_ns);
        changed.extend(self.recover(elapsed));
        self.processes.retain(|_, process| !process.is_idle());
        changed
    }

    fn raise(&mut self, now_ns: u64) -> Vec<u32> {
        let mut changed = Vec::new();
        for (number, process) in &mut self.processes {
            if process.bucket.is_empty()
                && process.raise(TARGET_SHARE * process.limit(), Cause::Process, now_ns)
            {
                changed.push(*number);
            }
        }
        if self.all.is_empty() {
            self.all.forgive();
            let rates: Vec<f64> = self.processes.values().map(Process::rate).collect();
            let share = share(TARGET_SHARE * self.limits.daemon, rates);
            for (number, process) in &mut self.processes {
                if process.rate() > share && process.raise(share, Cause::Daemon, now_ns) {
                    changed.push(*number);
                }
            }
        }
        changed
    }

    fn recover(&mut self, elapsed: f64) -> Vec<u32> {
        let mut room = TARGET_SHARE * self.limits.daemon
            - self.processes.values().map(Process::rate).sum::<f64>();
        let mut changed = Vec::new();
        for (number, process) in &mut self.processes {
            if !process.may_recover(elapsed, TARGET_SHARE * process.limit()) {
                continue;
            }
            let more = process.more_after_recovery();
            if more <= room {
                room -= more;
                process.recover();
                changed.push(*number);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
