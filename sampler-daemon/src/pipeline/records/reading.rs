//! Reads records from the ring, after the process events that precede them.

use crate::bpf::Kernel;
use crate::bpf::ring::Record;
use crate::pipeline::clock::monotonic_ns;
use crate::pipeline::command::Command;
use crate::pipeline::event_loop::BATCH;
use crate::pipeline::latency::Histogram;
use crate::pipeline::worker::Worker;
use std::time::{Duration, Instant};

/// How long a request waits for a record that is being written, while no record after it can be
/// read.
const SETTLE: Duration = Duration::from_millis(100);

/// How the ring has been read since the start.
#[derive(Clone, Debug)]
pub struct RingReading {
    /// Delay from an allocation to its sample in the store.
    pub delays: Histogram,
    /// How full the ring was at each reading.
    pub ring_fill: Histogram,
    /// Bytes that waited in the ring at the last reading.
    pub ring_waiting_bytes: u64,
}

impl Default for RingReading {
    fn default() -> RingReading {
        let (delays, ring_fill) = (Histogram::of_times(), Histogram::of_shares());
        RingReading { delays, ring_fill, ring_waiting_bytes: 0 }
    }
}

impl Worker {
    /// Records how full the ring is.
    pub(in crate::pipeline) fn note_ring_fill(&mut self) {
        let ring_bytes = u64::from(self.config.settings.ring_bytes).max(1);
        self.reading.ring_waiting_bytes = self.kernel.ring.waiting();
        self.reading.ring_fill.add(self.reading.ring_waiting_bytes * 1_000_000 / ring_bytes);
    }

    /// Reads up to `most` available records, after the process events that precede them.
    pub(in crate::pipeline) fn read(&mut self, most: usize) -> usize {
        let begin_ns = monotonic_ns();
        let until = self.kernel.ring.produced();
        self.take_events();
        let read = self.read_records(most, until);
        if self.kernel.ring.has_read(until) {
            // A waiting file may belong to a process that has ended.
            if !self.process_events.files().is_waiting() {
                self.ingest.forget_images(begin_ns);
            }
            self.ingest.stack_cache.forget_gone(begin_ns);
        }
        read
    }

    fn read_records(&mut self, most: usize, until: u64) -> usize {
        let Worker { kernel, ingest, reading, .. } = self;
        let Kernel { ring, targets, stack_cache, slots, .. } = kernel;
        ring.read(most, until, |record| {
            // The `Appeared` record of the process was lost. The process is known by its slot, if
            // the slot is still its own.
            if let Some(space) = record.space()
                && !matches!(record, Record::Appeared(_))
                && !ingest.table.contains(space.slot)
                && slots.is_of_now(space)
                && let Some(pid) = targets.pid_of(space.slot)
            {
                ingest.add_new_process(space, pid, String::new());
            }
            let sampled_ns = record.sampled_ns();
            ingest.record(record);
            // At once: a frequent stack comes again before this batch ends.
            ingest.stack_cache.update_kernel(stack_cache);
            if let Some(sampled_ns) = sampled_ns {
                reading.delays.add(monotonic_ns().saturating_sub(sampled_ns));
            }
        })
    }

    /// Reads all records in the ring at the time of the call, also those being written.
    pub(in crate::pipeline) fn read_and_handle(&mut self) {
        self.read_ring();
        self.handle_events();
    }

    /// Reads everything that the answer to a request needs: all calls that returned before the
    /// request.
    pub(in crate::pipeline) fn read_until_now_for(&mut self, question: &Command) {
        self.read_until_now();
        let has_window = match question {
            Command::Profile(request, _) => request.scope.window.is_some(),
            Command::History(..) => true,
            _ => false,
        };
        if has_window {
            self.observe();
        }
    }

    /// Reads the records of all calls that returned before this call.
    pub(in crate::pipeline) fn read_until_now(&mut self) {
        self.read_and_handle();
        self.repair();
        // After the samples: a rate is published before the first sample of that rate.
        self.note_unseen();
        self.read_library_states();
        // Unwinding the backlog took a while, in which few records have come. After they are read,
        // samples and exact totals are of the same moment.
        self.read_ring();
        self.note_floods();
    }

    /// As [`Worker::read_and_handle`], but events are left for later.
    pub(in crate::pipeline) fn read_ring(&mut self) {
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
