//! What profiling has cost: all of it, and one window.

use super::Waited;

/// What a process has done and paid since it is profiled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Ticks of its clock.
    pub clock: u64,
    /// Its CPU time without what profiling has cost, nanoseconds.
    pub own_ns: f64,
    /// What windows have cost, nanoseconds.
    pub spent_ns: f64,
}

/// What a window has cost, and what was in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowCost {
    /// How long it was seen, nanoseconds of progress.
    pub length_ns: f64,
    /// Ticks in that.
    pub ticks: u64,
    /// CPU time that hits and samples in it took in the process, nanoseconds.
    pub probes_ns: f64,
    /// CPU time that attaching and detaching took, with that of hits outside of the window, nanoseconds.
    pub fixed_ns: f64,
    /// CPU time that counting calls of a marker took, if they were, which goes with the window's length, nanoseconds.
    pub marking_ns: Option<f64>,
    /// What traps have added to the program's own time, as far as is known, nanoseconds.
    pub drag_ns: f64,
    /// What it has cost to wait for [steps](super::Steps), if it did: hits of that are in none of the others.
    pub waited: Option<Waited>,
    /// Bytes allocated in it.
    pub bytes: f64,
    /// Samples taken in it.
    pub samples: u64,
}

impl WindowCost {
    /// Relative variance of its length by the chance of its ticks: only the part of them that is no hit's falls into the program's own code.
    pub fn chance(&self) -> f64 {
        let of_hits = self.probes_ns / (self.probes_ns + self.length_ns).max(1.0);
        let ticks = self.ticks.max(1) as f64;
        // From step to step it may have nearly a tick more, or less.
        let of_ends = if self.waited.is_some() { 1.0 / (6.0 * ticks * ticks) } else { 0.0 };
        of_hits / ticks + of_ends
    }
}
