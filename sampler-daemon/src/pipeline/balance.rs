//! Keeps the daemon's copy of the live set equal to the kernel's, and the live set within its
//! bound.

use super::clock::monotonic_ns;
use super::config::AttachMode;
use super::records::ingest::{Ingest, halved};
use super::worker::Worker;
use crate::bpf::maps::totals::SlotTotals;
use crate::store::{Designs, LiveSample, StackId};
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::estimate::Sample;
use sampler_common::limits::THIN_AT_PERCENT;
use sampler_common::sampling::{self, Design};
use sampler_common::wire::{
    HALVINGS_SHIFT, HITS_SHIFT, LiveEntry, LiveKey, MAX_HALVINGS, STACK_LOST,
};
use std::time::{Duration, Instant, SystemTime};

/// Halvings of the rate in one go: from every byte to every 4 GiB.
const MAX_ROUNDS: usize = 32;
/// Thinning goes on until this share of the bound is in use, in percent.
const THIN_TO_PERCENT: u64 = 60;
/// Losses are repaired at every request, and otherwise at the end of a time slot, at most once in
/// this time.
const REPAIR_PERIOD: Duration = Duration::from_millis(500);

/// Losses by which the daemon's copy comes to differ from the live set.
const UNRECORDED: [Outcome; 7] = [
    Outcome::FreeRingFull,
    Outcome::FreeRingShare,
    Outcome::RingFull,
    Outcome::RingShare,
    Outcome::LiveReplaced,
    Outcome::Restored,
    Outcome::RestoreFailed,
];

/// The state of the comparison of both live sets.
#[derive(Debug)]
pub(super) struct Balance {
    /// When the live profile first became a lower bound.
    pub(super) live_incomplete: Option<SystemTime>,
    /// Losses that the last reconciliation has repaired.
    repaired_losses: u64,
    /// The last comparison of losses.
    reconciled: Instant,
}

impl Balance {
    pub(super) fn new() -> Balance {
        Balance { live_incomplete: None, repaired_losses: 0, reconciled: Instant::now() }
    }
}

impl Worker {
    /// Regular upkeep.
    pub(super) fn maintain_store(&mut self) {
        if self.kernel.live.len() * 100 >= u64::from(self.kernel.live.bound()) * THIN_AT_PERCENT {
            self.thin();
        }
        let observed = self.make_border();
        self.take_stale();
        self.collect();
        // The totals that were read for the border are used here too: reading the totals of many
        // processes is expensive.
        if let Some(totals) = observed
            && self.balance.reconciled.elapsed() >= REPAIR_PERIOD
        {
            self.repair_by(&totals);
            self.reconcile_missing_slots();
            self.adopt_missed();
        }
    }

    /// Detaches processes that are gone, in case the kernel side's event was lost. Other attach
    /// modes detect ends elsewhere.
    fn reconcile_missing_slots(&mut self) {
        if self.config.attach_mode == AttachMode::PidsSharedLinks {
            let gone = self.ingest.gone(&self.ingest.slots());
            self.detach_gone(&gone);
        }
    }

    /// Reconciles if any record was lost since the last reconciliation.
    pub(super) fn repair(&mut self) {
        self.repair_by(&self.kernel_totals());
    }

    /// As [`Worker::repair`], with the kernel's totals of all slots.
    fn repair_by(&mut self, totals: &SlotTotals) {
        self.balance.reconciled = Instant::now();
        // A failed realloc puts its block back, and that block may have been reconciled away
        // meanwhile.
        let losses = UNRECORDED.iter().map(|outcome| totals.outcome(*outcome)).sum();
        if totals.outcome(Outcome::LiveFull) + totals.outcome(Outcome::RestoreFailed) > 0 {
            self.balance.live_incomplete.get_or_insert_with(SystemTime::now);
        }
        if losses != self.balance.repaired_losses {
            self.balance.repaired_losses = losses;
            self.read_ring();
            self.reconcile();
        }
    }

    /// Removes samples that the live set no longer has, and adds samples that are missing. If the
    /// record with the stack arrives later, it replaces the added sample.
    pub(super) fn reconcile(&mut self) {
        let entries = match self.kernel.live.entries() {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!("read the live set: {error}");
                return;
            }
        };
        let by_sample: FxHashMap<u64, ()> =
            entries.iter().map(|(_, entry)| (entry.sample, ())).collect();
        let ended = self.ingest.live.remove_where(|sample, _| !by_sample.contains_key(&sample));
        self.ingest.outcomes.add(Outcome::Reconciled, ended.len() as u64);
        let now_ns = monotonic_ns();
        for live in &ended {
            self.ingest.lifetimes.unseen(live);
            self.ingest.windows.add_departed(live, now_ns);
        }
        for (key, entry) in &entries {
            adopt(&mut self.ingest, key, entry);
        }
    }

    /// Halves the rate of every process with more than its share, until the live set has room
    /// again.
    /// Each live sample of these processes is kept with probability π_new/π_old. Live estimates
    /// stay unbiased: a kept sample counts with π_new.
    pub(super) fn thin(&mut self) {
        self.read_ring();
        self.take_stale_now();
        let room = u64::from(self.kernel.live.bound()) * THIN_TO_PERCENT / 100;
        for _ in 0..MAX_ROUNDS {
            if self.kernel.live.len() <= room {
                return;
            }
            match self.thin_largest(room) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!("thin the live set: {error}");
                    return;
                }
            }
        }
    }

    /// Halves once the rate of processes with more than their share of `room`; false if there is
    /// none.
    fn thin_largest(&mut self, room: u64) -> std::io::Result<bool> {
        let mut held: FxHashMap<u32, u64> = FxHashMap::default();
        for (key, _) in self.kernel.live.entries()? {
            *held.entry(key.space.slot).or_default() += 1;
        }
        let share = share_of(room, held.values().copied().collect());
        let mut lower = FxHashMap::default();
        for (slot, _) in held.into_iter().filter(|(_, held)| *held > share) {
            if let Some(designs) = self.double_interval(slot) {
                self.ingest.note_thinned(slot);
                lower.insert(slot, designs);
            }
        }
        if lower.is_empty() {
            // The excess belongs to no process that is sampled: it is removed as stale.
            return Ok(false);
        }
        // Records that were sampled at the old rates meanwhile.
        self.read_ring();
        self.thin_once(&lower)?;
        Ok(true)
    }

    fn thin_once(&mut self, lower: &FxHashMap<u32, Designs>) -> std::io::Result<()> {
        for (key, entry) in self.kernel.live.entries()? {
            let Some(designs) = lower.get(&key.space.slot) else { continue };
            if entry.flags & STACK_LOST != 0 {
                adopt(&mut self.ingest, &key, &entry);
            }
            // A sample whose record has not arrived yet keeps its probability.
            let Some(live) = self.ingest.live.get(entry.sample) else { continue };
            let keep = keep(&live.sample, designs);
            if fastrand::f64() < keep {
                self.ingest.live.keep(entry.sample, keep);
                continue;
            }
            // The block was freed meanwhile: its record says so, or reconciling finds it.
            if self.kernel.live.remove(&key, entry.sample)? {
                self.ingest.live.thin_out(entry.sample);
                self.ingest.outcomes.add(Outcome::Thinned, 1);
            }
        }
        Ok(())
    }
}

impl Ingest {
    /// Ends the live samples of these slots in the daemon's copy: all, or those of images before
    /// `generation`. Returns the ended samples.
    /// The entries in the kernel's live set are stale by then, see [`super::records::stale_returns`].
    pub(super) fn end_blocks(
        &mut self,
        slots: &[u32],
        generation: Option<u32>,
        outcome: Outcome,
    ) -> Vec<LiveSample> {
        self.end_blocks_where(outcome, |live| {
            slots.contains(&live.space.slot)
                && generation.is_none_or(|current| live.space.generation < current)
        })
    }

    /// As [`Ingest::end_blocks`], for the samples for which `ends` holds.
    pub(super) fn end_blocks_where(
        &mut self,
        outcome: Outcome,
        ends: impl Fn(&LiveSample) -> bool,
    ) -> Vec<LiveSample> {
        let ended = self.live.remove_where(|_, live| ends(live));
        self.outcomes.add(outcome, ended.len() as u64);
        let now_ns = monotonic_ns();
        ended.iter().for_each(|live| self.windows.add_departed(live, now_ns));
        let Ingest { processes, lifetimes, .. } = self;
        let user_of = |live: &LiveSample| processes.get(live.process).user;
        let full =
            ended.iter().filter(|live| !lifetimes.ended(live, user_of(live), now_ns)).count();
        self.outcomes.add(Outcome::LifetimesFull, full as u64);
        ended
    }
}

/// The largest share that each holder may have so that all of them fit into `room`. A holder below
/// an equal part leaves its rest to the others (max-min fairness).
fn share_of(room: u64, mut held: Vec<u64>) -> u64 {
    held.sort_unstable();
    let (mut rest, mut sharers) = (room, held.len() as u64);
    for held in held {
        let equal = rest / sharers;
        if held > equal {
            return equal;
        }
        rest -= held;
        sharers -= 1;
    }
    u64::MAX
}

/// Probability with which a live sample is kept when the designs become `designs`: its new
/// inclusion probability divided by its old one.
/// It is a half if the sample has no probability of its own.
fn keep(sample: &Sample, designs: &Designs) -> f64 {
    // The rate of an external sample is not ours to lower.
    if sample.design.is_external() {
        return 0.5;
    }
    let now = Sample { design: designs[sampling::class(sample.size)], kept: 1.0, ..*sample };
    match (sample.inclusion(), now.inclusion()) {
        (Some(before), Some(after)) if before > 0.0 => (after / before).min(1.0),
        _ => 0.5,
    }
}

/// Enters a live sample whose record with the stack was lost.
fn adopt(ingest: &mut Ingest, key: &LiveKey, entry: &LiveEntry) {
    if ingest.live.contains(entry.sample) {
        return;
    }
    let Some(profiled) = ingest.table.get(key.space.slot) else { return };
    if key.space.generation != profiled.generation {
        return;
    }
    ingest.live.insert(
        entry.sample,
        LiveSample {
            process: profiled.id,
            space: key.space,
            stack: StackId::LOST,
            sample: Sample {
                hits: (entry.flags >> HITS_SHIFT) as u32,
                kept: halved(((entry.flags >> HALVINGS_SHIFT) & MAX_HALVINGS) as u32),
                ..Sample::new(entry.size, Design::from_word(entry.design))
            },
            time_ns: entry.time_ns,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::share_of;
    use proptest::prelude::*;

    #[test]
    fn a_process_that_holds_little_is_not_thinned() {
        assert_eq!(share_of(600, vec![900]), 600);
        assert_eq!(share_of(600, vec![10, 900, 20]), 570);
        assert_eq!(share_of(600, vec![400, 400, 10]), 295);
        assert_eq!(share_of(600, vec![100, 200]), u64::MAX);
        assert_eq!(share_of(600, vec![]), u64::MAX);
    }

    proptest! {
        #[test]
        fn shares_fill_the_room(room in 0u64..10_000, held in prop::collection::vec(1u64..1000, 0..40)) {
            let share = share_of(room, held.clone());
            let kept: u64 = held.iter().map(|held| (*held).min(share)).sum();
            let sum: u64 = held.iter().sum();
            prop_assert!(kept <= room.min(sum));
            // All of the room but a remainder that cannot be divided.
            prop_assert!(kept + held.len() as u64 > room.min(sum) || kept == sum);
        }
    }
}
