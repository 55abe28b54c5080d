//! Back-pressure: how much rarer processes are sampled than was asked for, so that no more samples come in a second than the daemon
//! is to take, of one process and of all together.
//!
//! Plainly: each process, and the daemon, has a bucket of samples that fills at its limit and holds a quarter of a second of it. Every
//! sample takes one out. Where it is empty, the interval is raised at once by what the rate is over the limit, and a third more; where
//! the daemon's is empty, those are raised that have more than their share, never the others (max-min fairness). When the storm is
//! over, the interval comes down again by a factor of √2 every quarter of a second, as long as the rate that is then expected stays
//! clear of the limit: a factor of 1,000 takes 5 s.
//!
//! A sample counts for what would come at the rate in force now: with the chance of being sampled now over the chance that it had. So
//! what is still in the ring from before the raise does not raise again, and what the kernel's own brake
//! ([`crate::sampling::brake`]) has held back counts as if it had come.
//!
//! Everything here is made of samples that have been taken and acts on later calls, each of which is judged by its own probability:
//! estimates stay unbiased.

mod bucket;
mod process;
mod share;

pub use process::{Cause, MAX_STEPS, Raised};
pub use share::share;

use crate::limits::LIBRARY_PER_SECOND;
use bucket::Bucket;
use process::Process;
use std::collections::BTreeMap;

/// The limit is aimed at from below, by so much.
const TARGET_SHARE: f64 = 0.75;
/// No limit, on a command line.
const UNLIMITED: &str = "unlimited";
/// Samples in one turn from which its rate means something.
const MIN_SAMPLES_FOR_RATE: f64 = 30.0;

/// Most samples in a second; infinite: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of all processes together.
    pub daemon: f64,
    /// Of each process.
    pub process: f64,
    /// Of each that has our library in it, where that is less. The library keeps it.
    pub library: f64,
}

impl Limits {
    /// None at all.
    pub const NONE: Limits =
        Limits { daemon: f64::INFINITY, process: f64::INFINITY, library: f64::INFINITY };

    /// One as it is given on a command line: samples in a second, or `unlimited`.
    ///
    /// # Errors
    /// If it is neither a number from 1 to a million nor `unlimited`: what it must be.
    pub fn parse(text: &str) -> Result<f64, String> {
        match text.parse() {
            _ if text == UNLIMITED => Ok(f64::INFINITY),
            Ok(samples) if (1.0..=1e6).contains(&samples) => Ok(samples),
            _ => Err(format!("must be 1 to 1000000 samples, or {UNLIMITED}")),
        }
    }

    /// As it is given on a command line.
    pub fn text(limit: f64) -> String {
        if limit.is_finite() { limit.to_string() } else { UNLIMITED.to_owned() }
    }

    /// Of a process with our library in it, which keeps it by itself ([`crate::sampling::token_bucket`]): also where there is no other, that
    /// of what it may send.
    pub fn of_library(&self) -> f64 {
        self.process.min(self.library).min(LIBRARY_PER_SECOND as f64)
    }
}

/// The intervals' raises of all processes, by a number that the caller gives to each.
#[derive(Clone, Debug)]
pub struct Pressure {
    limits: Limits,
    all: Bucket,
    processes: BTreeMap<u32, Process>,
}

impl Pressure {
    /// Nothing is raised.
    pub fn new(limits: Limits) -> Pressure {
        Pressure { limits, all: Bucket::new(limits.daemon), processes: BTreeMap::new() }
    }

    /// A sample of `process` came that stands for `expected` samples at the rate now in force. One with our library in it keeps its own
    /// limit ([`Limits::of_library`]) by itself, and has a share of the daemon's.
    pub fn take(&mut self, process: u32, expected: f64, has_library: bool) {
        let limit = if has_library { f64::INFINITY } else { self.limits.process };
        let process = self.processes.entry(process).or_insert_with(|| Process::new(limit));
        process.limit_to(limit);
        process.take(expected);
        self.all.take(expected);
    }

    /// Forgets a process: it is gone, or somebody has asked for another interval.
    pub fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// How far a process's interval is raised.
    pub fn raised(&self, process: u32) -> Raised {
        self.processes.get(&process).map(|of| of.raised).unwrap_or_default()
    }

    /// `elapsed` seconds have passed since the last turn; `now_ns` is any clock. Returns those whose interval changes.
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
