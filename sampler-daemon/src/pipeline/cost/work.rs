//! The work that the probes of a process have done, by the kernel side's counters.

use crate::bpf::maps::totals::SlotTotals;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::{ProcessId, Spending};
use sampler_common::cost::{Events, Placed, Work};
use sampler_common::counters::Outcome;
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
    /// [`super::Prices`] charges it.
    pub(in crate::pipeline) fn work(&self, id: ProcessId) -> Work {
        match self.ingest.slot_of(id) {
            Some(slot) => self.work_of_slot(slot),
            None => self.ingest.processes.get(id).spending.work,
        }
    }

    /// As [`Worker::work`], for a running process by its slot.
    pub(in crate::pipeline) fn work_of_slot(&self, slot: u32) -> Work {
        let mut work = Work::default();
        for role in ROLES {
            self.add_hits(&mut work, &[slot], role);
        }
        let Some(profiled) = self.ingest.table.get(slot) else { return work };
        match self.kernel.totals.read(slot) {
            Ok(totals) => {
                let taken: u64 = TAKEN.iter().map(|outcome| totals.outcome(*outcome)).sum();
                let spending = &self.ingest.processes.get(profiled.id).spending;
                work.sampled(Events::exact(taken), spending.stack_bytes_of(taken));
                work.returned(Events::exact(returned(&totals)));
                self.ingest.add_mappings(&mut work, slot, spending);
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
        work
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
}

impl Ingest {
    /// Adds calls that map memory. Each call sends a record with its stack.
    /// Their prices are not measured: the prices of samples are used, and assumed to be off by
    /// half.
    fn add_mappings(&self, work: &mut Work, slot: u32, spending: &Spending) {
        if spending.mappings == 0 {
            return;
        }
        let calls = spending.mappings as f64;
        let calls = Events { count: calls, variance: (calls / 2.0).powi(2) };
        work.hit(Role::Calloc, self.placed(slot), calls);
        work.sampled(calls, spending.mapping_stack_bytes);
    }

    /// How the kernel runs the probes of functions that map memory in a slot. Single-stepped ones
    /// are assumed if there are any.
    fn placed(&self, slot: u32) -> Placed {
        let allocators = self.table.get(slot).map(|profiled| &profiled.allocators);
        let mut functions = allocators.into_iter().flatten().flat_map(|of| &of.functions);
        Placed::one(functions.all(|of| of.role != Role::Map || of.placement.emulated))
    }
}

/// Calls that were followed to their return without a sample: large calls and failed ones. The few
/// large calls that were sampled as well are among them.
fn returned(totals: &SlotTotals) -> u64 {
    // The class of the smallest followed call also contains smaller calls.
    let large: u64 = totals.objects.iter().skip(sampling::class(FOLLOW_BYTES) + 1).sum();
    large + totals.outcome(Outcome::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_failed_calls_are_followed() {
        let mut totals = SlotTotals::default();
        totals.objects[sampling::class(4096)] = 1_000_000;
        totals.objects[sampling::class(FOLLOW_BYTES * 2)] = 10;
        totals.outcomes[Outcome::Sampled as usize] = 40;
        totals.outcomes[Outcome::Failed as usize] = 3;
        assert_eq!(returned(&totals), 13);
    }
}
