//! Keeps the daemon's picture of the live set true, and the live set within its bound.

use super::clock::monotonic_ns;
use super::ingest::{Ingest, halved};
use super::worker::Worker;
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
/// Losses are repaired at every question, and otherwise this often.
const REPAIR_PERIOD: Duration = Duration::from_secs(1);

impl Worker {
    /// Regular upkeep.
    pub(super) fn balance(&mut self) {
        if self.kernel.live.len() * 100 >= u64::from(self.kernel.live.bound()) * THIN_AT_PERCENT {
            self.thin();
        }
        self.make_border();
        self.take_stale();
        if self.last_reconciled.elapsed() >= REPAIR_PERIOD {
            self.repair();
        }
    }

    /// Reconciles if anything was lost since the last time.
    pub(super) fn repair(&mut self) {
        self.last_reconciled = Instant::now();
        let totals = self.kernel_totals();
        // A block that a failed realloc puts back may have been reconciled away meanwhile.
        let losses =
            [Outcome::FreeRingFull, Outcome::RingFull, Outcome::LiveReplaced, Outcome::Restored]
                .iter()
                .map(|outcome| totals.outcome(*outcome))
                .sum();
        if totals.outcome(Outcome::LiveFull) + totals.outcome(Outcome::RestoreFailed) > 0 {
            self.live_incomplete.get_or_insert_with(SystemTime::now);
        }
        if losses != self.reconciled_losses {
            self.reconciled_losses = losses;
            self.drain();
            self.reconcile();
        }
    }

    /// Removes samples that the live set no longer has, and adds those that are missing: if the record
    /// with the stack is only late, it replaces what is entered here.
    fn reconcile(&mut self) {
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
        ended.iter().for_each(|live| self.ingest.lifetimes.unseen(live));
        for (key, entry) in &entries {
            adopt(&mut self.ingest, key, entry);
        }
    }

    /// Halves the rate of every process and keeps each live sample with probability π_new/π_old, until the
    /// live set has room again. Live estimates stay unbiased: a kept sample counts with π_new.
    pub(super) fn thin(&mut self) {
        self.drain();
        self.take_stale_now();
        let bound = u64::from(self.kernel.live.bound());
        for _ in 0..MAX_ROUNDS {
            if self.kernel.live.len() * 100 <= bound * THIN_TO_PERCENT {
                return;
            }
            let slots: Vec<u32> = self.attached.keys().copied().collect();
            let mut lower = FxHashMap::default();
            for slot in slots {
                if let Some(designs) = self.press(slot) {
                    lower.insert(slot, designs);
                }
            }
            // What was sampled at the old rates meanwhile.
            self.drain();
            if let Err(error) = self.thin_once(&lower) {
                tracing::warn!("thin the live set: {error}");
                return;
            }
        }
    }

    fn thin_once(&mut self, lower: &FxHashMap<u32, Designs>) -> std::io::Result<()> {
        for (key, entry) in self.kernel.live.entries()? {
            let Some(designs) = lower.get(&key.space.slot) else { continue };
            if entry.flags & STACK_LOST != 0 {
                adopt(&mut self.ingest, &key, &entry);
            }
            // A sample whose record is still on its way keeps its probability.
            let Some(live) = self.ingest.live.get(entry.sample) else { continue };
            let keep = keep(&live.sample, designs);
            if fastrand::f64() < keep {
                self.ingest.live.keep(entry.sample, keep);
                continue;
            }
            // Freed meanwhile: its record says so, or reconciling does.
            if self.kernel.live.remove(&key, entry.sample)? {
                self.ingest.live.thin_out(entry.sample);
                self.ingest.outcomes.add(Outcome::Thinned, 1);
            }
        }
        Ok(())
    }

    /// Ends the live samples of these slots in the daemon's picture: all, or those of images before `generation`. The live set's own
    /// entries are stale by then, see [`super::stale`].
    pub(super) fn end_blocks(&mut self, slots: &[u32], generation: Option<u32>, outcome: Outcome) {
        let ended = self.ingest.live.remove_where(|_, live| {
            slots.contains(&live.space.slot)
                && generation.is_none_or(|current| live.space.generation < current)
        });
        self.ingest.outcomes.add(outcome, ended.len() as u64);
        let now_ns = monotonic_ns();
        ended.iter().for_each(|live| self.ingest.lifetimes.ended(live, now_ns));
    }
}

/// Probability with which a live sample stays when the designs become `designs`: that of being sampled now over that of being here;
/// a half where it has no probability of its own.
fn keep(sample: &Sample, designs: &Designs) -> f64 {
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
    let Some(source) = ingest.sources.get(&key.space.slot) else { return };
    if key.space.generation != source.generation {
        return;
    }
    ingest.live.insert(
        entry.sample,
        LiveSample {
            process: source.process,
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
