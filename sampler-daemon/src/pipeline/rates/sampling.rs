//! How processes are sampled: designs in an eBPF map, made from the requested sampling, or from
//! exact totals and the live set.
//!
//! Rates are computed from earlier data and act on later calls only, and every sample carries the
//! design of its own call. So nothing here can bias an estimate.

use crate::bpf::maps::totals::SlotTotals;
use crate::pipeline::processes::attach::Attached;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::{Designs, Sampling, SamplingRecord};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{self, Strategy, interval_for};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls after which a Bernoulli strategy learns the mean size.
pub(super) const LEARNING_CALLS: u64 = 1000;
/// How often the interval for `--samples-per-second`, and the rates of the adaptive strategy, are
/// computed anew.
const RELEARN_PERIOD: Duration = Duration::from_secs(1);
/// How often computations that are due are searched for, with more than
/// [`ALWAYS_LEARNED_PROCESSES`] processes.
const LEARN_PERIOD: Duration = Duration::from_millis(200);
/// Up to this many processes, the search is in every turn of the event loop.
const ALWAYS_LEARNED_PROCESSES: usize = 8;
/// Weight of the earlier sums at each update, so that sums cover about ten seconds.
const EARLIER_WEIGHT: f64 = 0.9;
/// An interval is changed only if it differs by more than this factor.
const TOLERANCE: f64 = 1.1;

/// What a process has lately allocated and held.
pub(in crate::pipeline) struct Learning {
    /// Exact totals when the sampling was last requested.
    start: SlotTotals,
    /// Exact totals at the last update.
    last: SlotTotals,
    updated: Instant,
    /// Allocated objects and bytes by size class: sums in which earlier updates weigh less.
    classes: [(f64, f64); CLASSES],
    /// Live objects by size class, summed over the updates in the same way.
    live: [f64; CLASSES],
    /// Seconds that the sums cover, in the same way.
    seconds: f64,
}

impl Learning {
    pub(in crate::pipeline) fn new(start: SlotTotals) -> Learning {
        Learning {
            start,
            last: start,
            updated: Instant::now(),
            classes: [(0.0, 0.0); CLASSES],
            live: [0.0; CLASSES],
            seconds: 0.0,
        }
    }

    /// Adds what was allocated since the last update, and the objects that are live now.
    fn update(&mut self, now: SlotTotals, live: &[f64; CLASSES]) {
        let seconds = self.updated.elapsed().as_secs_f64();
        self.updated = Instant::now();
        self.seconds = self.seconds * EARLIER_WEIGHT + seconds;
        let classes = self.classes.iter_mut().zip(&mut self.live).zip(live).enumerate();
        for (class, (((objects, bytes), held), live)) in classes {
            let more = |now: u64, last: u64| now.saturating_sub(last) as f64;
            *objects =
                *objects * EARLIER_WEIGHT + more(now.objects[class], self.last.objects[class]);
            *bytes = *bytes * EARLIER_WEIGHT + more(now.bytes[class], self.last.bytes[class]);
            *held = *held * EARLIER_WEIGHT + live;
        }
        self.last = now;
    }
}

impl Worker {
    /// Changes how the process in `slot` is sampled, from the next call on.
    pub(in crate::pipeline) fn request_sampling(&mut self, slot: u32, requested: Sampling) {
        self.note_ring_pressure(slot);
        self.pressure.forget(slot);
        self.change_sampling(slot, |record| record.request(requested));
        self.start_learning(slot);
    }

    /// Forgets what was learned of the process in `slot`.
    pub(super) fn start_learning(&mut self, slot: u32) {
        let totals = self.kernel.totals.read(slot);
        if let (Some(attached), Ok(totals)) = (self.ingest.table.attached_mut(slot), totals) {
            *attached.learning = Learning::new(totals);
        }
    }

    /// Changes the record of the process in `slot`, and puts its designs into force.
    pub(super) fn change_sampling(&mut self, slot: u32, change: impl FnOnce(&mut SamplingRecord)) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let process = profiled.id;
        let record = Arc::make_mut(&mut self.ingest.processes.get_mut(process).sampling);
        let (before, unseen) = (record.designs, record.unseen);
        change(record);
        self.put_into_force(slot, process, &before, &unseen);
    }

    /// Doubles the interval of the process in `slot`, for the bound of the live set. Returns the
    /// designs then in force.
    pub(in crate::pipeline) fn double_interval(&mut self, slot: u32) -> Option<Designs> {
        self.change_sampling(slot, |record| {
            record.pressure += 1;
            record.refresh();
        });
        self.adapt_if_requested(slot);
        Some(self.ingest.sampling_of(slot)?.designs)
    }

    /// Computes the rates by size class anew, if the strategy is adaptive.
    pub(super) fn adapt_if_requested(&mut self, slot: u32) {
        if self
            .ingest
            .sampling_of(slot)
            .is_some_and(|of| of.requested.strategy == Strategy::Adaptive)
        {
            self.adapt(slot);
        }
    }

    /// Computes intervals and rates from exact totals and the live set, if a strategy needs that.
    pub(in crate::pipeline) fn adapt_sampling(&mut self) {
        // With many processes the search is expensive, and nothing waits for it.
        if self.ingest.table.all_attached().count() > ALWAYS_LEARNED_PROCESSES
            && self.learned.elapsed() < LEARN_PERIOD
        {
            return;
        }
        self.learned = Instant::now();
        let slots: Vec<u32> = self.ingest.table.attached_slots();
        for slot in slots {
            let Some(record) = self.ingest.sampling_of(slot) else { continue };
            let requested = record.requested;
            let waits = requested.strategy == Strategy::Bernoulli
                && requested.one_in.is_none()
                && record.learned_bytes.is_none();
            let follows =
                requested.samples_per_second.is_some() || requested.strategy == Strategy::Adaptive;
            if waits {
                self.learn_mean(slot);
            }
            let due = |attached: &Attached| attached.learning.updated.elapsed() >= RELEARN_PERIOD;
            if follows && self.ingest.table.attached(slot).is_some_and(due) {
                self.relearn(slot, &requested);
            }
        }
    }

    /// Puts the mean size of the first calls into force, once there are enough calls.
    fn learn_mean(&mut self, slot: u32) {
        let Some(attached) = self.ingest.table.attached(slot) else { return };
        let Ok(now) = self.kernel.totals.read(slot) else { return };
        let calls = now.all_objects() - attached.learning.start.all_objects();
        if calls < LEARNING_CALLS {
            return;
        }
        let bytes = now.all_bytes() - attached.learning.start.all_bytes();
        self.change_sampling(slot, |record| {
            record.learned_bytes = Some((bytes as f64 / calls as f64).max(1.0));
            record.refresh();
        });
    }

    fn relearn(&mut self, slot: u32, requested: &Sampling) {
        let Ok(now) = self.kernel.totals.read(slot) else { return };
        let live = self.ingest.live_objects(slot);
        let Some(attached) = self.ingest.table.attached_mut(slot) else { return };
        attached.learning.update(now, &live);
        let learning = &attached.learning;
        if let Some(samples) = requested.samples_per_second {
            let wanted =
                interval_for(samples * learning.seconds, requested.strategy, &learning.classes);
            self.adopt_interval(slot, wanted);
        }
        if requested.strategy == Strategy::Adaptive {
            self.adapt(slot);
        }
    }

    /// Puts an interval into force if it differs enough from the one in force.
    fn adopt_interval(&mut self, slot: u32, wanted: Option<u64>) {
        let (Some(wanted), Some(record)) = (wanted, self.ingest.sampling_of(slot)) else { return };
        let ratio = wanted as f64 / record.wanted_bytes as f64;
        if !(1.0 / TOLERANCE..=TOLERANCE).contains(&ratio) {
            self.change_sampling(slot, |record| {
                record.wanted_bytes = wanted;
                record.refresh();
            });
        }
    }

    /// Sets rates by size class for the least variance of live bytes.
    fn adapt(&mut self, slot: u32) {
        let Some(attached) = self.ingest.table.attached(slot) else { return };
        let learning = &attached.learning;
        let uses = std::array::from_fn(|class| sampling::ClassUse {
            objects: learning.classes[class].0,
            bytes: learning.classes[class].1,
            live_objects: learning.live[class],
        });
        self.change_sampling(slot, |record| {
            record.set(sampling::adapt(&uses, record.interval() as f64));
        });
    }
}

impl Ingest {
    /// How the process in `slot` is sampled.
    pub(in crate::pipeline) fn sampling_of(&self, slot: u32) -> Option<&SamplingRecord> {
        let profiled = self.table.get(slot)?;
        Some(&self.processes.get(profiled.id).sampling)
    }

    /// Estimated live objects of the process in `slot` by size class.
    fn live_objects(&self, slot: u32) -> [f64; CLASSES] {
        let mut objects = [0.0; CLASSES];
        let Some(profiled) = self.table.get(slot) else { return objects };
        for (_, live) in self.live.iter().filter(|(_, of)| of.process == profiled.id) {
            if let Some(inclusion) = live.sample.inclusion().filter(|of| *of > 0.0) {
                objects[sampling::class(live.sample.size)] += 1.0 / inclusion;
            }
        }
        objects
    }
}
