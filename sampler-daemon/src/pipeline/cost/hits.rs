//! How often probes were hit.
//!
//! The eBPF programs count the hits of every role approximately
//! ([`sampler_common::wire::HITS_SWITCH`]). Emulated and single-stepped hits are counted apart,
//! since their prices differ.
//!
//! Only emulated hits of malloc have no counter. Every hit of an allocating function ends in the
//! exact totals or in an outcome. So malloc's emulated hits are what remains of all these ends
//! without the counted hits.

use crate::bpf::maps::totals::SlotTotals;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use sampler_common::cost::Placed;
use sampler_common::counters::Outcome;
use sampler_common::counting::{Count, Counted};
use sampler_common::estimate::Confidence;
use sampler_common::wire::Role;

/// The allocating roles without malloc.
const OTHERS: [Role; 5] =
    [Role::Calloc, Role::Realloc, Role::AlignedAlloc, Role::PosixMemalign, Role::New];
/// Ends of a hit that is not in the exact totals.
const OTHER_ENDS: [Outcome; 4] =
    [Outcome::Refused, Outcome::Nested, Outcome::Failed, Outcome::StaleReturn];

/// Confidence of the intervals.
const CONFIDENCE: Confidence = Confidence::DEFAULT;

impl Worker {
    /// Hits of all probes of `role` in these slots with this placement. Emulated hits of malloc are
    /// computed from the ends ([`Worker::uncounted`]).
    pub(in crate::pipeline) fn hits(
        &self,
        slots: &[u32],
        role: Role,
        placed: Placed,
    ) -> Option<Count> {
        let kind = placed as usize;
        if role.is_mapping() {
            return None;
        }
        let hits = &self.kernel.hits;
        let mut all: Counted = slots.iter().map(|slot| hits.read(*slot, role)[kind]).sum();
        if role != Role::Malloc {
            return Some(all.count(CONFIDENCE));
        }
        // Hits outside of windows are not counted by function; nearly all of them are malloc's.
        let outside: Counted = slots.iter().map(|slot| hits.read_outside(*slot)[kind]).sum();
        if placed == Placed::SingleStepped {
            all.add(&outside);
            return Some(all.count(CONFIDENCE));
        }
        let seen = self.uncounted(slots)?;
        let outside = outside.count(CONFIDENCE);
        Some(Count {
            value: seen.value + outside.value,
            low: seen.low + outside.low,
            high: seen.high + outside.high,
        })
    }

    /// Hits without a counter: all hits that have ended, without the counted ones.
    fn uncounted(&self, slots: &[u32]) -> Option<Count> {
        let (mut counted, mut ended) = (Counted::default(), 0);
        for slot in slots {
            let hits = &self.kernel.hits;
            let [_, stepped] = hits.read(*slot, Role::Malloc);
            counted.add(&stepped);
            counted.add(&OTHERS.into_iter().flat_map(|role| hits.read(*slot, role)).sum());
            match self.kernel.totals.read(*slot) {
                Ok(totals) => ended += ends(&totals),
                Err(error) => {
                    tracing::warn!("{error:#}");
                    return None;
                }
            }
        }
        Some(counted.count(CONFIDENCE).left_of(ended))
    }

    /// Calls of freeing functions; `None` if they are not probed.
    pub(in crate::pipeline) fn free_calls(&self, id: ProcessId) -> Option<Count> {
        let frees = match self.ingest.slot_of(id) {
            Some(slot) => self.kernel.hits.read(slot, Role::Free).into_iter().sum(),
            None => self.ingest.processes.get(id).final_free_calls,
        };
        self.config.settings.track_live.then(|| frees.count(CONFIDENCE))
    }
}

/// Hits of allocating functions that have ended.
fn ends(totals: &SlotTotals) -> u64 {
    totals.all_objects() + OTHER_ENDS.iter().map(|outcome| totals.outcome(*outcome)).sum::<u64>()
}
