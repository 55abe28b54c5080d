//! How often probes were hit.
//!
//! The kernel side counts the hits of every role but malloc approximately ([`HITS_SWITCH`]). Malloc is
//! not counted once more on its way: every hit of an allocating function ends up in the exact totals or in an
//! outcome, so malloc's are what the other roles leave of these.

use super::worker::Worker;
use crate::bpf::totals::SlotTotals;
use crate::store::ProcessId;
use sampler_common::counters::Outcome;
use sampler_common::counting::Count;
use sampler_common::estimate::Confidence;
use sampler_common::wire::{HITS_SWITCH, Role};

/// Roles that the kernel side counts among the allocating ones.
const COUNTED: [Role; 5] =
    [Role::Calloc, Role::Realloc, Role::AlignedAlloc, Role::PosixMemalign, Role::New];
/// How a hit ends that is not in the exact totals.
const OTHER_ENDS: [Outcome; 4] =
    [Outcome::Refused, Outcome::Nested, Outcome::Failed, Outcome::StaleReturn];

/// Confidence of the intervals.
const CONFIDENCE: Confidence = Confidence::DEFAULT;

impl Worker {
    /// Hits of all probes of `role` in these slots; of malloc those whose end has been seen.
    pub(super) fn hits(&self, slots: &[u32], role: Role) -> Option<Count> {
        if role.is_mapping() {
            return None;
        }
        let read = |role: Role| slots.iter().map(move |slot| self.kernel.hits.read(*slot, role));
        if role != Role::Malloc {
            return Some(HITS_SWITCH.sum(&read(role).collect::<Vec<_>>(), CONFIDENCE));
        }
        let others: Vec<u64> = COUNTED.into_iter().flat_map(read).collect();
        let mut ended = 0;
        for slot in slots {
            match self.kernel.totals.read(*slot) {
                Ok(totals) => ended += ends(&totals),
                Err(error) => {
                    tracing::warn!("{error:#}");
                    return None;
                }
            }
        }
        let seen = HITS_SWITCH.sum(&others, CONFIDENCE).left_of(ended);
        if self.config.budget.is_none() {
            return Some(seen);
        }
        // Which function's they are is not counted; nearly all of them are malloc's.
        let outside: Vec<u64> =
            slots.iter().map(|slot| self.kernel.hits.read_outside(*slot)).collect();
        let outside = HITS_SWITCH.sum(&outside, CONFIDENCE);
        Some(Count {
            value: seen.value + outside.value,
            low: seen.low + outside.low,
            high: seen.high + outside.high,
        })
    }

    /// Calls of freeing functions; `None` where they are not probed.
    pub(super) fn free_calls(&self, id: ProcessId) -> Option<Count> {
        let counted = match self.slot_of(id) {
            Some(slot) => HITS_SWITCH.counted(self.kernel.hits.read(slot, Role::Free)),
            None => self.ingest.processes.get(id).final_free_calls,
        };
        self.config.settings.track_live.then(|| counted.count(CONFIDENCE))
    }
}

/// Hits of allocating functions that have ended.
fn ends(totals: &SlotTotals) -> u64 {
    totals.all_objects() + OTHER_ENDS.iter().map(|outcome| totals.outcome(*outcome)).sum::<u64>()
}
