//! Back-pressure: intervals rise with the rate of samples, and fall again.
//!
//! Two mechanisms raise an interval, at different speeds. Ring pressure
//! ([`sampler_common::sampling::ring_pressure`]) acts in the kernel on the very next call when a
//! process's records fill the ring. It is released when the records have been read.
//! The controller here ([`sampler_common::pressure`]) evaluates the records that were read, every
//! few milliseconds. It raises the wanted interval, so that ring pressure is seldom needed.

use crate::pipeline::clock::monotonic_ns;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::SamplingRecord;
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::pressure::{Limits, Pressure};
use sampler_common::sampling::{self, Design, ring_pressure};
use sampler_common::wire::AllocationRecord;
use std::time::SystemTime;

/// Least time between two turns of the controller.
const TURN_NS: u64 = 10_000_000;

/// Samples that were read since the last turn.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct Arrivals {
    /// Samples by slot, as many as would have come at the current rate.
    expected: FxHashMap<u32, f64>,
    /// When the newest sample was taken.
    newest_ns: u64,
}

/// The controller, with the kernel-side state that it needs.
pub(in crate::pipeline) struct BackPressure {
    control: Pressure,
    /// End of the last turn: the records that were read were sampled before it.
    turned_ns: u64,
    /// End of the turn before the last one.
    before_ns: u64,
    /// Slots that may still be under ring pressure.
    raised_by_ring: FxHashSet<u32>,
}

impl BackPressure {
    pub(in crate::pipeline) fn new(limits: Limits) -> BackPressure {
        let now_ns = monotonic_ns();
        BackPressure {
            control: Pressure::new(limits),
            turned_ns: now_ns,
            before_ns: now_ns,
            raised_by_ring: FxHashSet::default(),
        }
    }

    /// When ring levels were last read before now. A level that is up now was 0 at that time.
    pub(super) fn ring_levels_read_ns(&self) -> u64 {
        self.before_ns
    }

    /// Watches this slot, which is or was under ring pressure.
    pub(super) fn watch(&mut self, slot: u32) {
        self.raised_by_ring.insert(slot);
    }

    /// Factor by which to raise the interval of this slot.
    pub(in crate::pipeline) fn factor(&self, slot: u32) -> f64 {
        self.control.raised(slot).factor()
    }

    /// Forgets a slot whose process is gone, or is to be sampled in another way.
    pub(in crate::pipeline) fn forget(&mut self, slot: u32) {
        self.control.forget(slot);
        self.raised_by_ring.remove(&slot);
    }
}

impl Arrivals {
    /// Forgets a slot whose process is gone.
    pub(in crate::pipeline) fn forget(&mut self, slot: u32) {
        self.expected.remove(&slot);
    }

    /// Counts a sample of a process that is sampled by `sampling`. `limited_ns` is when the limit
    /// of our library in the process was set. Earlier samples of the library do not count.
    pub(in crate::pipeline) fn note(
        &mut self,
        record: &AllocationRecord,
        sampling: &SamplingRecord,
        limited_ns: Option<u64>,
    ) {
        let charged = Design::from_word(record.design);
        let now = match charged.is_external() {
            false => sampling.designs[sampling::class(record.size)],
            // We can limit self-sampling only if our library does it.
            true if limited_ns.is_none_or(|limited| record.time_ns < limited) => return,
            true => charged,
        };
        let expected = expected(charged, now, record.size);
        *self.expected.entry(record.space.slot).or_default() += expected;
        self.newest_ns = self.newest_ns.max(record.time_ns);
    }
}

/// Number of samples under the design `now` that one sample represents which was charged at the
/// design `charged`.
fn expected(charged: Design, now: Design, size: u64) -> f64 {
    if charged == now {
        return 1.0;
    }
    let ratio = match (charged.inclusion(size), now.inclusion(size)) {
        (Some(charged), Some(now)) if charged > 0.0 => now / charged,
        // A stride, or a change of strategy.
        _ => charged.interval() / now.interval(),
    };
    if ratio.is_finite() { ratio } else { 1.0 }
}

impl Worker {
    /// Runs a turn of the controller, if one is due.
    pub(in crate::pipeline) fn control_pressure(&mut self) {
        let ring = &self.kernel.ring;
        // Time advances with the records that were read: a late worker reads more at once.
        let now_ns = match ring.has_read(ring.produced()) {
            true => monotonic_ns(),
            false => self.ingest.arrivals.newest_ns,
        };
        let elapsed_ns = now_ns.saturating_sub(self.pressure.turned_ns);
        if elapsed_ns < TURN_NS {
            return;
        }
        self.pressure.before_ns = std::mem::replace(&mut self.pressure.turned_ns, now_ns);
        let arrived = std::mem::take(&mut self.ingest.arrivals.expected);
        for (slot, expected) in &arrived {
            let profiled = self.ingest.table.get(*slot);
            let is_library = profiled.is_some_and(|profiled| profiled.library.is_some());
            self.pressure.control.take(*slot, *expected, is_library);
        }
        for slot in self.pressure.control.turn(elapsed_ns as f64 / 1e9, now_ns) {
            self.raise(slot);
        }
        self.pressure.raised_by_ring.extend(arrived.keys());
        self.release_ring_pressure();
    }

    /// Puts the controller's interval into force.
    fn raise(&mut self, slot: u32) {
        let raised = self.pressure.control.raised(slot);
        self.note_ring_pressure(slot);
        self.change_sampling(slot, |record| {
            if record.raised.since_ns != raised.since_ns {
                record.raised_since = Some(SystemTime::now());
            }
            record.raised = raised;
            record.refresh();
        });
        self.adapt_if_requested(slot);
        self.limit_library(slot);
    }

    /// Releases the ring pressure of slots whose records have been read.
    fn release_ring_pressure(&mut self) {
        let size = u64::from(self.config.settings.ring_bytes);
        for slot in std::mem::take(&mut self.pressure.raised_by_ring) {
            let level = self.note_ring_pressure(slot);
            let was_raised =
                level > 0 || self.ingest.sampling_of(slot).is_some_and(|of| of.is_raised_by_ring);
            if !was_raised {
                continue;
            }
            let own = self.kernel.slots.waiting(slot);
            let mut is_raised = ring_pressure::level(own, self.kernel.ring.waiting(), size) > 0;
            if !is_raised {
                self.kernel.slots.release_ring_pressure(slot);
                is_raised = !self.end_ring_pressure(slot);
            }
            if is_raised {
                self.pressure.raised_by_ring.insert(slot);
            }
            self.ingest.record_ring_pressure(slot, |record| {
                record.is_raised_by_ring = is_raised;
                if !is_raised {
                    record.ring_pressure.end(monotonic_ns());
                }
            });
        }
    }

    /// Records how far ring pressure has lowered the rates of the process in `slot`. Returns the
    /// highest level since the last reading.
    pub(in crate::pipeline) fn note_ring_pressure(&mut self, slot: u32) -> u32 {
        // The level of a process that has taken a slot waits until its `Appeared` record is read.
        let Some(process) = self.ingest.table.id_of(slot) else { return 0 };
        let level = self.kernel.slots.take_ring_level(slot);
        if level > 0 {
            self.note_level(slot, process, level);
        }
        level
    }
}

impl Ingest {
    fn record_ring_pressure(&mut self, slot: u32, change: impl FnOnce(&mut SamplingRecord)) {
        if let Some(profiled) = self.table.get(slot) {
            let sampling = &mut self.processes.get_mut(profiled.id).sampling;
            change(std::sync::Arc::make_mut(sampling));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::expected;
    use sampler_common::sampling::{Design, Strategy};

    #[test]
    fn a_sample_counts_as_expected_at_the_present_rate() {
        let of = |strategy, interval| Design::from_interval(strategy, interval, 64.0).unwrap();
        let geometric = |interval| of(Strategy::Geometric, interval);
        assert_eq!(expected(geometric(64), geometric(64), 8), 1.0);
        assert!((expected(geometric(1 << 20), geometric(1 << 16), 8) - 16.0).abs() < 0.1);
        // A block far larger than either interval comes anyway.
        assert!((expected(geometric(1 << 16), geometric(1 << 12), 1 << 30) - 1.0).abs() < 1e-9);
        assert!((expected(geometric(64).at_ring_level(3), geometric(64), 1) - 8.0).abs() < 0.1);
        assert_eq!(expected(of(Strategy::Stride, 4096), of(Strategy::Stride, 1024), 8), 4.0);
        assert_eq!(expected(geometric(64), Design::NEVER, 8), 0.0);
    }
}
