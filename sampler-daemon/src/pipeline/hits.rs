//! How often probes were hit.
//!
//! The kernel side counts the hits of every role approximately ([`sampler_common::wire::HITS_SWITCH`]), those that it emulates and those that it single-steps apart, since
//! they differ in price. Only an emulated malloc is not counted once more on its way: every hit of an allocating function ends up in the exact
//! totals or in an outcome, so these are what all others leave.

use super::worker::Worker;
use crate::bpf::totals::SlotTotals;
use crate::store::ProcessId;
use sampler_common::cost::Placed;
use sampler_common::counters::Outcome;
use sampler_common::counting::{Count, Counted};
use sampler_common::estimate::Confidence;
use sampler_common::wire::Role;

/// The allocating roles but malloc.
const OTHERS: [Role; 5] =
    [Role::Calloc, Role::Realloc, Role::AlignedAlloc, Role::PosixMemalign, Role::New];
/// How a hit ends that is not in the exact totals.
const OTHER_ENDS: [Outcome; 4] =
    [Outcome::Refused, Outcome::Nested, Outcome::Failed, Outcome::StaleReturn];

/// Confidence of the intervals.
const CONFIDENCE: Confidence = Confidence::DEFAULT;

impl Worker {
    /// Hits of all probes of `role` in these slots that are placed so; of malloc those whose end has been seen.
    pub(super) fn hits(&self, slots: &[u32], role: Role, placed: Placed) -> Option<Count> {
        let kind = match placed {
            Placed::Emulated => 0,
            Placed::SingleStepped => 1,
            Placed::Either => return None,
        };
        if role.is_mapping() {
            return None;
        }
        let hits = &self.kernel.hits;
        let mut all: Counted = slots.iter().map(|slot| hits.read(*slot, role)[kind]).sum();
        if role != Role::Malloc {
            return Some(all.count(CONFIDENCE));
        }
        // Which function's those are that were hit while nothing was to be seen is not counted; nearly all of them are malloc's.
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

    /// Hits that are not counted when they happen, by what others leave of those that have ended.
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

    /// Calls of freeing functions; `None` where they are not probed.
    pub(super) fn free_calls(&self, id: ProcessId) -> Option<Count> {
        let frees = match self.slot_of(id) {
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
