//! Allocation rates: differences of exact totals, divided by the time between the reads of the
//! totals.

use crate::top::data::Snapshot;
use crate::top::history::History;
use sampler_common::profile::Exact;
use std::collections::{HashMap, HashSet};

/// A rate per second. It is exact: counts of all allocations, and samplerd's own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::top) struct Rate {
    pub(in crate::top) bytes: f64,
    pub(in crate::top) objects: f64,
}

impl Rate {
    fn between(before: Exact, now: Exact, seconds: f64) -> Rate {
        let by = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Rate {
            bytes: by(before.alloc_space, now.alloc_space),
            objects: by(before.alloc_objects, now.alloc_objects),
        }
    }
}

/// The current rate of a process, and the history of its numbers.
#[derive(Clone, Debug, Default)]
pub(in crate::top) struct Course {
    pub(in crate::top) rate: Option<Rate>,
    /// Bytes per second.
    pub(in crate::top) allocated: History,
    /// Held bytes.
    pub(in crate::top) held: History,
}

/// The rates of all processes.
#[derive(Clone, Debug, Default)]
pub(in crate::top) struct Rates {
    /// The rate of all processes together.
    pub(in crate::top) all: Course,
    processes: HashMap<u32, Course>,
}

impl Rates {
    pub(in crate::top) fn of(&self, pid: u32) -> Option<&Course> {
        self.processes.get(&pid)
    }

    /// Updates the rates from the snapshot `before` to the snapshot `now`.
    pub(super) fn update(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        // A different samplerd counts from its own start.
        let before =
            before.filter(|of| of.daemon.pid == now.daemon.pid && of.time_ns < now.time_ns);
        if before.is_none() {
            *self = Rates::default();
        }
        let seconds = before.map(|of| (now.time_ns - of.time_ns) as f64 / 1e9);
        let earlier: HashMap<_, _> = before
            .iter()
            .flat_map(|of| &of.processes)
            .map(|of| ((of.pid, of.attached_unix_ns), of.exact))
            .collect();
        for process in &now.processes {
            let course = self.processes.entry(process.pid).or_default();
            // A process that is new has allocated everything since the last snapshot.
            let was = earlier.get(&(process.pid, process.attached_unix_ns)).copied();
            let was = was.unwrap_or(Some(Exact::default()));
            course.rate = match (was, process.exact, seconds) {
                (Some(was), Some(is), Some(seconds)) => Some(Rate::between(was, is, seconds)),
                _ => None,
            };
            course.go(process.held.map(|held| held.bytes.value));
        }
        let there: HashSet<u32> = now.processes.iter().map(|of| of.pid).collect();
        self.processes.retain(|pid, _| there.contains(pid));
        let rate = before.zip(seconds);
        self.all.rate = rate.map(|(before, by)| Rate::between(before.exact, now.exact, by));
        self.all.go(now.held.map(|held| held.bytes.value));
    }
}

impl Course {
    fn go(&mut self, held: Option<f64>) {
        self.rate.iter().for_each(|rate| self.allocated.push(rate.bytes));
        held.iter().for_each(|held| self.held.push(*held));
    }
}
