//! Our own preloaded library in processes: what it says of its interval, and of samples that nobody heard of; and how it is told to sample.
//!
//! How its samples end is told by a probe (`sampler-ebpf/src/otel.rs`). What nobody heard it counts itself: that is read from the process's memory at every
//! look at the process and whenever somebody asks, and counted as the daemon's own outcome. Of a program that has ended it is what was read last.

use super::config::Reach;
use super::worker::Worker;
use crate::target::discovery::Discovery;
use crate::target::preloaded::Block;
use sampler_common::counters::Outcome;
use sampler_common::sampling::Rate;
use sampler_common::sampling::rate::MAX_INTERVAL_BYTES;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// The library in a program image.
pub(super) struct Library {
    block: Block,
    /// The image.
    generation: u32,
    /// How many of the unheard are among the outcomes already.
    seen: u64,
}

impl Library {
    /// Raises its interval by a factor above the one that was asked for; the interval in force then, if that is another one: not of a process that has
    /// yet to begin sampling.
    fn press(&self, factor: f64) -> io::Result<Option<f64>> {
        let state = self.block.read()?;
        let Some(asked) = state.asked.or(state.rate) else { return Ok(None) };
        let is_raised = factor > 1.0;
        let interval = (asked.interval_bytes() * factor).round() as u64;
        let rate = match is_raised {
            true => Rate::from_interval(interval.min(MAX_INTERVAL_BYTES)).unwrap_or(asked),
            false => asked,
        };
        if state.rate == Some(rate) && state.asked.is_some() == is_raised {
            return Ok(None);
        }
        self.block.set_rate(rate, is_raised.then_some(asked))?;
        Ok(Some(rate.interval_bytes()))
    }
}

impl Worker {
    /// Looks for it in a process.
    pub(super) fn meet_library(&mut self, slot: u32, discovery: &Discovery) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let (pid, generation) = (source.pid, source.generation);
        let known = source.library.as_ref().is_some_and(|of| of.generation == generation);
        let mut own = discovery.samplers.iter().filter_map(|of| Some((of.preloaded?, of)));
        let has_own = own.clone().next().is_some();
        // Of several copies all but one say that they only pass calls on, and are none.
        let found = own.find_map(|(library, of)| library.block(pid, &of.allocator.path).ok());
        let library = found.filter(|_| !known).map(|block| Library {
            block,
            generation,
            seen: self.unheard_before(slot, &block),
        });
        if let Some(source) = self.ingest.sources.get_mut(&slot)
            && !(known && has_own)
        {
            source.library = library;
        }
        // Of a parent whose interval was raised a child has the rate, and what was asked for; of a new program image, neither.
        if !known {
            self.press_library(slot);
        }
        self.hear_library(slot);
    }

    /// Hears what it says.
    pub(super) fn hear_library(&mut self, slot: u32) {
        let Some(source) = self.ingest.sources.get_mut(&slot) else { return };
        let Some(library) = &mut source.library else { return };
        let state = match library.block.read() {
            Ok(state) => state,
            Err(error) => {
                // It leaves sampling to another copy: which one, the next look shows. One that is gone says nothing.
                if error.kind() == io::ErrorKind::InvalidData {
                    source.library = None;
                }
                return;
            }
        };
        let is_raised = self.ingest.processes.get(source.process).sampling.raised.factor() > 1.0;
        let more = state.unheard.saturating_sub(library.seen);
        self.ingest.outcomes.add(Outcome::LibraryUnheard, more);
        library.seen = state.unheard;
        let interval = state.rate.map(|rate| rate.interval_bytes());
        let sampling = &mut self.ingest.processes.get_mut(source.process).sampling;
        if let Some(interval) = interval.filter(|interval| sampling.told.0 != *interval) {
            Arc::make_mut(sampling).tell(interval);
        }
        // It had not begun to sample when it was told; or another samplerd has come or gone, which starts from what was asked for.
        if is_raised && (state.asked.is_none() || state.rate.is_none()) {
            self.press_library(slot);
        }
    }

    /// Hears all of them.
    pub(super) fn hear_libraries(&mut self) {
        let sources = self.ingest.sources.iter();
        let with = sources.filter(|(_, of)| of.library.is_some()).map(|(slot, _)| *slot);
        for slot in with.collect::<Vec<_>>() {
            self.hear_library(slot);
        }
    }

    /// What nobody heard in a process before that was attached to.
    fn unheard_before(&self, slot: u32, block: &Block) -> u64 {
        let Some(source) = self.ingest.sources.get(&slot) else { return 0 };
        let started = self.ingest.processes.get(source.process).origin.started;
        let own_start = SystemTime::now().checked_sub(self.started.elapsed());
        let is_older = started.zip(own_start).is_some_and(|(process, own)| process < own);
        match !source.has_exec() && (self.config.reach == Reach::Listed || is_older) {
            true => block.read().map_or(0, |state| state.unheard),
            false => 0,
        }
    }

    /// Has it sample as is asked for, if it is there.
    pub(super) fn instruct_library(&mut self, slot: u32, interval_bytes: u64) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let Some(library) = &source.library else { return };
        let Some(rate) = Rate::from_interval(interval_bytes) else { return };
        match library.block.set_rate(rate, None) {
            Ok(()) => {
                let record = self.ingest.processes.get_mut(source.process);
                Arc::make_mut(&mut record.sampling).tell(interval_bytes as f64);
            }
            Err(error) => tracing::warn!(pid = source.pid, "set the interval: {error}"),
        }
    }

    /// Has it sample as much rarer than it was asked to as back-pressure wants, which may be not at all.
    pub(super) fn press_library(&mut self, slot: u32) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let factor = self.ingest.processes.get(source.process).sampling.raised.factor();
        let Some(library) = &source.library else { return };
        match library.press(factor) {
            Ok(Some(interval)) => {
                let record = self.ingest.processes.get_mut(source.process);
                Arc::make_mut(&mut record.sampling).tell(interval);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(pid = source.pid, "raise the interval: {error}"),
        }
    }

    /// All sample as they were asked to: this daemon ends.
    pub(super) fn ease_libraries(&self) {
        let sources = self.ingest.sources.values();
        for library in sources.filter_map(|source| source.library.as_ref()) {
            // Most likely the process has just ended.
            let _ = library.press(1.0);
        }
    }
}
