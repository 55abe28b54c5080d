//! The settings of the in-process sampler in each process: samplerd reads its interval and its
//! undelivered samples, and sets its rate.
//!
//! The library keeps a limit of samples per second by itself
//! ([`sampler_common::sampling::token_bucket`]). samplerd sets the limit when it finds the library.
//! It lowers the limit when that of all processes leaves less.
//!
//! A probe reports how the library's samples end (`sampler-ebpf/src/otel.rs`). The library itself
//! counts undelivered samples. samplerd reads this count from the process's memory at every
//! inspection and for every answer, and adds it to its own outcomes. For a program that has ended,
//! the last reading counts.

use super::injected::InjectedImage;
use super::overhead_budget::CpusInUse;
use crate::inspect::discovery::Discovery;
use crate::inspect::process::preloaded::{Block, State};
use crate::pipeline::clock::monotonic_ns;
use crate::pipeline::config::AttachMode;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use sampler_common::counters::Outcome;
use sampler_common::pressure::{Cause, Raised};
use sampler_common::sampling::Rate;
use sampler_common::sampling::token_bucket::MAX_PERIOD_NS;
use sampler_common::source::SampleSource;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// Part of the limit of all processes that one library may use. The rest is for other processes,
/// since the bucket and the first halvings let a burst pass.
const SHARE_OF_ALL: f64 = 0.5;

/// The library in a program image.
pub(in crate::pipeline) struct Library {
    block: Block,
    /// The injected image of the library; `None`: it was preloaded.
    pub(in crate::pipeline) injected: Option<InjectedImage>,
    /// The program image.
    generation: u32,
    /// CPUs that the process uses, with `--max-overhead`.
    pub(super) cpus: Option<CpusInUse>,
    /// Undelivered samples that are already among the outcomes.
    seen: u64,
    /// When the library's limit was last set, by the monotonic clock.
    pub(in crate::pipeline) limited_ns: u64,
}

impl Worker {
    /// Looks for our library in a process.
    pub(super) fn register_library(&mut self, slot: u32, discovery: &Discovery) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let (pid, generation) = (profiled.pid, profiled.generation);
        let known = profiled.library.as_ref().is_some_and(|of| of.generation == generation);
        let mut own = discovery.samplers.iter().filter_map(|of| Some((of.preloaded?, of)));
        let has_own = own.clone().next().is_some();
        // If the library is mapped more than once, one copy samples. The others only forward calls,
        // and report that.
        let found = own.find_map(|(library, of)| {
            Some((library.block(pid, &of.allocator.path).ok()?, of.source()))
        });
        let library = found.filter(|_| !known).map(|(mut block, source)| Library {
            injected: (source == SampleSource::Injected)
                .then(|| InjectedImage::find(pid))
                .flatten(),
            seen: self.begin_listening(slot, &mut block),
            block,
            generation,
            cpus: None,
            limited_ns: 0,
        });
        if let Some(profiled) = self.ingest.table.get_mut(slot)
            && !(known && has_own)
        {
            profiled.library = library;
        }
        if !known {
            self.limit_library(slot);
            self.keep_budget(slot);
        }
        self.read_library_state(slot);
        self.look_at_hooks(slot);
    }

    /// Reads the state of the library in a process.
    pub(super) fn read_library_state(&mut self, slot: u32) {
        let cause = match self.pressure.factor(slot) > 1.0 {
            true => Cause::Daemon,
            false => Cause::Process,
        };
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(library) = &mut profiled.library else { return };
        let state = match library.block.read() {
            Ok(state) => state,
            Err(error) => {
                // The copy leaves sampling to another copy, which the next inspection finds. A
                // process that is gone cannot be read.
                if error.kind() == io::ErrorKind::InvalidData {
                    profiled.library = None;
                }
                return;
            }
        };
        let more = state.undelivered.saturating_sub(library.seen);
        self.ingest.outcomes.add(Outcome::LibraryUndelivered, more);
        library.seen = state.undelivered;
        let Some(rate) = state.rate else { return };
        let intervals = (rate.interval_bytes(), state.lowest.unwrap_or(rate).interval_bytes());
        let raised = raised(&state, cause);
        let sampling = &mut self.ingest.processes.get_mut(profiled.id).sampling;
        if sampling.library_bytes.0 == intervals.0
            && sampling.library_bytes.1 >= intervals.1
            && sampling.library_raised == raised
        {
            return;
        }
        let sampling = Arc::make_mut(sampling);
        if raised.raises > sampling.library_raised.raises {
            sampling.raised_since = Some(SystemTime::now());
        }
        sampling.set_library(intervals, raised);
    }

    /// Reads the states of all libraries.
    pub(in crate::pipeline) fn read_library_states(&mut self) {
        let all = self.ingest.table.iter();
        let with = all.filter(|(_, of)| of.library.is_some()).map(|(slot, _)| slot);
        for slot in with.collect::<Vec<_>>() {
            self.read_library_state(slot);
            self.look_at_hooks(slot);
        }
    }

    /// The number of undelivered samples to ignore: those that the library has counted before this
    /// samplerd observed the process.
    fn begin_listening(&mut self, slot: u32, block: &mut Block) -> u64 {
        let Some(profiled) = self.ingest.table.get(slot) else { return 0 };
        let started = self.ingest.processes.get(profiled.id).origin.started;
        let own_start = SystemTime::now().checked_sub(self.started.elapsed());
        let is_older = started.zip(own_start).is_some_and(|(process, own)| process < own);
        if profiled.has_exec() || !(self.config.attach_mode == AttachMode::Pids || is_older) {
            return 0;
        }
        if let Err(error) = block.begin_raises() {
            tracing::debug!(pid = profiled.pid, "begin to listen: {error}");
        }
        block.read().map_or(0, |state| state.undelivered)
    }

    /// Sets the interval of the library in a process, if there is one.
    pub(in crate::pipeline) fn set_library_interval(&mut self, slot: u32, interval_bytes: u64) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(library) = &mut profiled.library else { return };
        let Some(rate) = Rate::from_interval(interval_bytes) else { return };
        if let Err(error) = library.block.set_rate(rate) {
            tracing::warn!(pid = profiled.pid, "set the interval: {error}");
        }
        self.limit_library(slot);
        self.read_library_state(slot);
    }

    /// Sets the limit of the library in a process, lowered by as much as the limit of all processes
    /// requires.
    pub(in crate::pipeline) fn limit_library(&mut self, slot: u32) {
        let factor = self.pressure.factor(slot);
        let affordable = self.affordable_per_second(slot);
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let Some(library) = &mut profiled.library else { return };
        let limits = self.config.limits;
        let limit = limits.of_library().min(SHARE_OF_ALL * limits.daemon).min(affordable);
        let period_ns = (factor * 1e9 / limit) as u64;
        let now_ns = monotonic_ns();
        library.limited_ns = now_ns;
        let set = library.block.set_period(period_ns.clamp(1, MAX_PERIOD_NS), now_ns);
        if let Err(error) = set {
            // Usually the process has just ended.
            tracing::debug!(pid = profiled.pid, "limit its samples: {error}");
        }
    }
}

impl Ingest {
    /// Restores the requested interval of a process that allocates no more. Its pause is over, but
    /// the library notices that only at its next sample.
    pub(in crate::pipeline) fn restore_library_interval(&mut self, slot: u32) {
        let Some(profiled) = self.table.get_mut(slot) else { return };
        let Some(library) = &mut profiled.library else { return };
        let Ok(state) = library.block.read() else { return };
        let Some(requested) =
            state.requested.filter(|requested| state.rate.is_some_and(|rate| rate < *requested))
        else {
            return;
        };
        if state.until_ns < monotonic_ns()
            && let Err(error) = library.block.set_rate(requested)
        {
            tracing::debug!(pid = profiled.pid, "restore the interval: {error}");
        }
    }
}

/// How far the library has raised its interval.
fn raised(state: &State, cause: Cause) -> Raised {
    let factor =
        |(requested, rate): (Rate, Rate)| rate.interval_bytes() / requested.interval_bytes();
    let factor = state.requested.zip(state.rate).map_or(1.0, factor);
    Raised { steps: Raised::steps_of(factor), raises: state.raises, since_ns: 0, cause }
}
