//! The work that the probes of a process have done, by the kernel side's counters.

use super::worker::Worker;
use crate::bpf::totals::SlotTotals;
use crate::store::{ProcessId, Spending};
use sampler_common::cost::{Events, Placed, Work};
use sampler_common::counters::Outcome;
use sampler_common::counting::Count;
use sampler_common::limits::FOLLOW_BYTES;
use sampler_common::sampling;
use sampler_common::wire::Role;

/// Roles whose hits are counted.
const ROLES: [Role; 10] = [
    Role::Malloc,
    Role::Calloc,
    Role::Realloc,
    Role::AlignedAlloc,
    Role::PosixMemalign,
    Role::New,
    Role::Free,
    Role::OtelAlloc,
    Role::OtelFree,
    Role::LibraryEnded,
];

/// Ends of samples that were taken.
const TAKEN: [Outcome; 4] =
    [Outcome::Sampled, Outcome::RingFull, Outcome::RingShare, Outcome::ReadFault];

impl Worker {
    /// The work of a process's probes since the attach.
    ///
    /// The difference of two values ([`Work::since`]) is the work in between;
    /// [`super::cost::Prices`] charges it.
    pub(super) fn work(&self, id: ProcessId) -> Work {
        match self.slot_of(id) {
            Some(slot) => self.work_of_slot(slot),
            None => self.ingest.processes.get(id).spending.work,
        }
    }

    /// As [`Worker::work`], for a running process by its slot.
    pub(super) fn work_of_slot(&self, slot: u32) -> Work {
        let mut work = Work::default();
        for role in ROLES {
            self.add_hits(&mut work, &[slot], role);
        }
        let Some(profiled) = self.ingest.table.get(slot) else { return work };
        match self.kernel.totals.read(slot) {
            Ok(totals) => {
                let sent = totals.outcome(Outcome::Sampled);
                let spending = &self.ingest.processes.get(profiled.id).spending;
                work.sampled(sent, spending.stack_bytes_of(sent));
                work.ended(totals.outcome(Outcome::Freed));
                work.returned(returned(
                    &totals,
                    external(&totals, self.hits(&[slot], Role::OtelAlloc, Placed::Emulated)),
                ));
                self.add_mappings(&mut work, slot, spending);
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
        work
    }

    /// Adds calls that map memory. Each call is followed to its return and sends a record with its
    /// stack.
    /// Their prices are not measured: the prices of samples are used, and assumed to be off by
    /// half.
    fn add_mappings(&self, work: &mut Work, slot: u32, spending: &Spending) {
        if spending.mappings == 0 {
            return;
        }
        let calls = spending.mappings as f64;
        let calls = Events { count: calls, variance: (calls / 2.0).powi(2) };
        let placed = self.placed(&[slot], Role::Map).unwrap_or(Placed::Emulated);
        work.hit(Role::Calloc, placed, calls);
        work.returned(calls);
        work.sampled(spending.mappings, spending.mapping_stack_bytes);
    }

    /// Hits of the probes of a role in these slots.
    pub(super) fn add_hits(&self, work: &mut Work, slots: &[u32], role: Role) {
        for placed in [Placed::Emulated, Placed::SingleStepped] {
            self.add_placed_hits(work, slots, role, placed);
        }
    }

    /// As [`Worker::add_hits`], for probes with one placement.
    pub(super) fn add_placed_hits(
        &self,
        work: &mut Work,
        slots: &[u32],
        role: Role,
        placed: Placed,
    ) {
        let hits = self.hits(slots, role, placed).filter(|hits| hits.value > 0.0);
        hits.into_iter().for_each(|hits| work.hit(role, placed, hits));
    }

    /// The placement of the functions of a role whose calls are counted by their records alone.
    fn placed(&self, slots: &[u32], role: Role) -> Option<Placed> {
        let sources = slots.iter().filter_map(|slot| self.ingest.table.get(*slot));
        let functions =
            sources.flat_map(|profiled| &profiled.allocators).flat_map(|of| &of.functions);
        let of_role = functions.filter(|function| function.role == role);
        Placed::of(of_role.map(|function| function.placement.emulated))
    }
}

/// Samples that a process has taken by itself: fewest and most.
fn external(totals: &SlotTotals, hits: Option<Count>) -> (u64, u64) {
    let Some(hits) = hits else { return (0, 0) };
    let [refused, flood] = [Outcome::UsdtRefused, Outcome::UsdtFlood].map(|of| totals.outcome(of));
    let samples = |hits: f64| (hits as u64).saturating_sub(refused + flood);
    (samples(hits.low), samples(hits.high.ceil()))
}

/// Calls that were followed to their return: sampled, large and failed calls, and reallocs of
/// sampled blocks.
/// A call may be in several of these groups; the overlap is not counted.
/// Samples that a process takes by itself have no return.
fn returned(totals: &SlotTotals, (fewest, most): (u64, u64)) -> Events {
    let taken: u64 = TAKEN.iter().map(|outcome| totals.outcome(*outcome)).sum();
    let [least, taken] = [most, fewest].map(|external| taken.saturating_sub(external));
    // The class of the smallest followed call also contains smaller calls.
    let large: u64 = totals.objects.iter().skip(sampling::class(FOLLOW_BYTES) + 1).sum();
    let failed = totals.outcome(Outcome::Failed);
    Events::between(least.max(large) + failed, taken + large + failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_counts_have_bounds() {
        let mut totals = SlotTotals::default();
        totals.objects[sampling::class(4096)] = 1_000_000;
        totals.objects[sampling::class(FOLLOW_BYTES * 2)] = 10;
        totals.outcomes[Outcome::Sampled as usize] = 40;
        totals.outcomes[Outcome::Failed as usize] = 3;
        assert_eq!(returned(&totals, (0, 0)), Events::between(43, 53));
        assert_eq!(returned(&totals, (30, 35)), Events::between(13, 23));
        totals.outcomes[Outcome::UsdtFlood as usize] = 8;
        let hits = Count { value: 48.0, low: 47.5, high: 48.5 };
        assert_eq!(external(&totals, Some(hits)), (39, 41));
    }
}
