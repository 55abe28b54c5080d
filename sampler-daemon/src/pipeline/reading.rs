//! Records are taken from the ring, behind what happened before them.

use super::clock::monotonic_ns;
use super::command::Command;
use super::event_loop::BATCH;
use super::worker::Worker;
use crate::bpf::Kernel;
use crate::bpf::ring::Record;
use std::time::{Duration, Instant};

/// How long a question waits for a record that is just being written, and none behind it can be read.
const SETTLE: Duration = Duration::from_millis(100);
impl Worker {
    /// Counts a look at the ring: how full it is.
    pub(super) fn note_ring_fill(&mut self) {
        let ring_bytes = u64::from(self.config.settings.ring_bytes).max(1);
        self.ring_waiting_bytes = self.kernel.ring.waiting();
        self.ring_fill.add(self.ring_waiting_bytes * 1_000_000 / ring_bytes);
    }

    /// Reads up to `most` records of those that are there, and first what happened before them.
    pub(super) fn read(&mut self, most: usize) -> usize {
        let begin_ns = monotonic_ns();
        let until = self.kernel.ring.produced();
        self.take_events();
        let read = self.read_records(most, until);
        if self.kernel.ring.has_read(until) {
            // What a file that waits turns out to be may be asked of a process that has ended.
            if !self.process_events.files().is_waiting() {
                self.ingest.forget_images(begin_ns);
            }
            self.ingest.stack_cache.forget_gone(begin_ns);
        }
        read
    }

    fn read_records(&mut self, most: usize, until: u64) -> usize {
        let Worker { kernel, ingest, delays, .. } = self;
        let Kernel { ring, targets, stack_cache, slots, .. } = kernel;
        ring.read(most, until, |record| {
            // The record of a process's coming was lost: it is known by its slot, if that is its own still.
            if let Some(space) = record.space()
                && !matches!(record, Record::Appeared(_))
                && !ingest.table.contains(space.slot)
                && slots.is_of_now(space)
                && let Some(pid) = targets.pid_of(space.slot)
            {
                ingest.newcomer(space, pid, String::new());
            }
            let sampled_ns = record.sampled_ns();
            ingest.record(record);
            // At once: a stack that comes often comes again before this batch ends.
            ingest.stack_cache.update_kernel(stack_cache);
            if let Some(sampled_ns) = sampled_ns {
                delays.add(monotonic_ns().saturating_sub(sampled_ns));
            }
        })
    }

    /// Reads everything that was in the ring when called, also what was just being written.
    pub(super) fn settle(&mut self) {
        self.drain();
        self.handle_events();
    }

    /// Reads what the answer to a question is made of: everything that returned before the question came.
    pub(super) fn catch_up_for(&mut self, question: &Command) {
        self.catch_up();
        let has_window = match question {
            Command::Profile(request, _) => request.scope.window.is_some(),
            Command::History(..) => true,
            _ => false,
        };
        if has_window {
            self.observe();
        }
    }

    /// Reads everything that returned before the call.
    pub(super) fn catch_up(&mut self) {
        self.settle();
        self.repair();
        // After the samples: a rate is published before the first sample of that rate.
        self.note_unseen();
        self.read_library_states();
        // Unwinding what had piled up took its time. What has come meanwhile is little: behind it samples and exact
        // totals are of the same moment.
        self.drain();
        self.note_floods();
    }

    /// As [`Worker::settle`], but leaves the events for later.
    pub(super) fn drain(&mut self) {
        let target = self.kernel.ring.produced();
        let mut progress = Instant::now();
        while !self.kernel.ring.has_read(target) && progress.elapsed() < SETTLE {
            if self.read(BATCH) > 0 {
                progress = Instant::now();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
