//! How often probes were hit.
//!
//! The kernel side counts the hits of every role approximately ([`HITS_SWITCH`]), those that it emulates and those that it single-steps apart, since
//! they differ in price. Only an emulated malloc is not counted once more on its way: every hit of an allocating function ends up in the exact
//! totals or in an outcome, so these are what all others leave.

use super::worker::Worker;
use crate::bpf::totals::SlotTotals;
use crate::store::ProcessId;
use sampler_common::cost::Placed;
use sampler_common::counters::Outcome;
use sampler_common::counting::{Count, Counted};
use sampler_common::estimate::Confidence;
use sampler_common::wire::{HITS_SWITCH, Role};

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
        let each = |read: &dyn Fn(u32) -> u64| -> Vec<u64> {
            slots.iter().map(|slot| read(*slot)).collect()
        };
        let mut counted = each(&|slot| self.kernel.hits.read(slot, role)[kind]);
        if role != Role::Malloc {
            return Some(HITS_SWITCH.sum(&counted, CONFIDENCE));
        }
        // Which function's those are that were hit while nothing was to be seen is not counted; nearly all of them are malloc's.
        let outside = each(&|slot| self.kernel.hits.read_outside(slot)[kind]);
        if placed == Placed::SingleStepped {
            counted.extend(outside);
            return Some(HITS_SWITCH.sum(&counted, CONFIDENCE));
        }
        let seen = self.uncounted(slots)?;
        let outside = HITS_SWITCH.sum(&outside, CONFIDENCE);
        Some(Count {
            value: seen.value + outside.value,
            low: seen.low + outside.low,
            high: seen.high + outside.high,
        })
    }

    /// Hits that are not counted when they happen, by what others leave of those that have ended.
    fn uncounted(&self, slots: &[u32]) -> Option<Count> {
        let (mut counted, mut ended) = (Vec::new(), 0);
        for slot in slots {
            let hits = &self.kernel.hits;
            let [_, stepped] = hits.read(*slot, Role::Malloc);
            counted.push(stepped);
            counted.extend(OTHERS.into_iter().flat_map(|role| hits.read(*slot, role)));
            match self.kernel.totals.read(*slot) {
                Ok(totals) => ended += ends(&totals),
                Err(error) => {
                    tracing::warn!("{error:#}");
                    return None;
                }
            }
        }
        Some(HITS_SWITCH.sum(&counted, CONFIDENCE).left_of(ended))
    }

    /// Calls of freeing functions; `None` where they are not probed.
    pub(super) fn free_calls(&self, id: ProcessId) -> Option<Count> {
        let frees = match self.slot_of(id) {
            Some(slot) => counted(self.kernel.hits.read(slot, Role::Free)),
            None => self.ingest.processes.get(id).final_free_calls,
        };
        self.config.settings.track_live.then(|| frees.count(CONFIDENCE))
    }
}

/// Hits of both kinds together.
pub(super) fn counted(words: [u64; 2]) -> Counted {
    let mut sum = Counted::default();
    words.iter().for_each(|word| sum.add(&HITS_SWITCH.counted(*word)));
    sum
}

/// Hits of allocating functions that have ended.
fn ends(totals: &SlotTotals) -> u64 {
    totals.all_objects() + OTHER_ENDS.iter().map(|outcome| totals.outcome(*outcome)).sum::<u64>()
}
