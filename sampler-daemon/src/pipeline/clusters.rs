//! What was seen in windows, taken to all of a process's progress.

use super::gather::Gathered;
use super::met::{self, Met};
use super::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::duty::{Clock, Group, Groups, Progress, TALLIES};
use sampler_common::estimate::{Cluster, Clusters, Confidence, Stratum};
use sampler_common::limits::CLASSES;

/// Of the room that size classes have which a row has no sample of: their totals are estimates.
const ROOM: f64 = 0.999;

/// How the windows of a process stand for all of it.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// All of its progress.
    progress: Progress,
    /// Ticks of strata, compared with those of windows: what went unseen. Infinite: there was no window.
    unseen: f64,
}

impl Extent {
    /// All of its progress, compared with the ticks of strata that windows could stand for.
    pub(super) fn factor(&self) -> f64 {
        self.progress.factor
    }
}

/// Those of some processes; none of one without windows.
pub(super) type Extents = FxHashMap<ProcessId, Extent>;

impl Worker {
    /// How the windows of processes stand for all of them, at this moment: their clocks go on.
    pub(super) fn extents(&self, of: &[ProcessId]) -> Extents {
        of.iter().filter_map(|id| Some((*id, self.extent(*id)?))).collect()
    }

    /// Of one process; `None`: its clock has not ticked.
    fn extent(&self, id: ProcessId) -> Option<Extent> {
        let groups = self.ingest.clustered.groups(id);
        let tail = self.slot_of(id).map_or(0.0, |slot| self.tail(slot));
        let length = groups.map_or(0.0, Groups::length) + tail;
        let ticks = groups.map_or(0.0, Groups::ticks);
        let clock = self.clock_of(id);
        let all = (clock.ticks as f64).max(length);
        let shorter = self
            .kernel
            .duties
            .as_ref()
            .map_or(1.0, |duties| clock.progress(duties.timers()) / clock.ticks.max(1) as f64);
        let factor = all / length * shorter;
        let has_tally = groups.is_some_and(Groups::has_tally);
        let slot = self.slot_of(id).filter(|_| has_tally);
        let looks = slot.map_or([None; TALLIES], |slot| self.looks(slot));
        let clock = clock.ticks as f64;
        let progress = Progress { factor, tail, clock, looks };
        (length > 0.0).then_some(Extent { progress, unseen: length / ticks })
    }

    /// What the clock of a process shows, or has shown at its exit.
    pub(super) fn clock_of(&self, id: ProcessId) -> Clock {
        if let Some(clock) = self.ingest.clustered.ended(id) {
            return clock;
        }
        let duties = self.kernel.duties.as_ref();
        self.slot_of(id).zip(duties).map_or(Clock::default(), |(slot, duties)| duties.clock(slot))
    }

    /// Relative standard error of what the clocks count: that of a tick's cost, and of their number where ticks come by chance.
    fn error_of_clock(&self, id: ProcessId) -> f64 {
        let of_cost = self.kernel.duties.as_ref().map_or(0.0, |duties| duties.timers().error());
        of_cost.hypot((self.clock_of(id).ticks.max(1) as f64).sqrt().recip())
    }

    /// What rows have in groups of windows, and what these groups are.
    pub(super) fn add_clusters(
        &self,
        gathered: &mut Gathered,
        index: &FxHashMap<ProcessId, u32>,
        extents: &Extents,
    ) {
        if !self.ingest.clustered.is_on {
            return;
        }
        let ids = gathered.processes.clone();
        let mut factors: FxHashMap<ProcessId, Vec<[f64; 2]>> = FxHashMap::default();
        for (process, id) in (0..).zip(ids) {
            let groups = self.ingest.clustered.groups(id).filter(|of| of.windows() > 0);
            let Some((extent, groups)) = extents.get(&id).zip(groups) else {
                // Nothing was seen of it, and may have been there. Without a plan nothing could be seen.
                let length = extents.get(&id).map_or(0.0, |_| self.clock_of(id).ticks as f64);
                gathered.reference.clusters.insert(process, unmet(length));
                continue;
            };
            let (mut clusters, of_groups) = groups.clusters(&extent.progress);
            // What is taken by a tally has the clock's errors in both of what is compared.
            let is_by_clock =
                clusters.correction.is_none_or(|of| of.traffic_bytes == 0 && of.tallied == 0);
            let of_clock = if is_by_clock { self.error_of_clock(id) } else { 0.0 };
            clusters.errors = clusters.errors.map(|error| error.hypot(of_clock));
            clusters.correction.iter_mut().for_each(|of| of.of_clock = of_clock);
            let known = Confidence::new(ROOM).unwrap_or(Confidence::DEFAULT);
            for class in 0..CLASSES {
                let most = |pick: fn(&Group) -> &[f64; CLASSES], quantity: usize| {
                    let each: Vec<f64> = groups
                        .iter()
                        .zip(&of_groups)
                        .map(|(group, of)| pick(group)[class] * of[quantity])
                        .collect();
                    let upper = clusters.upper(&each, known);
                    if upper.is_finite() { upper.ceil() as u64 } else { u64::MAX }
                };
                let (bytes, objects) =
                    (most(|group| &group.bytes, 0), most(|group| &group.objects, 1));
                let stratum = Stratum { process, class: class as u8 };
                if let Some(totals) = gathered.reference.strata.get_mut(&stratum) {
                    totals.unseen_objects *= extent.unseen * extent.factor();
                    totals.unseen_bytes *= extent.unseen * extent.factor();
                    totals.at_most = Some((bytes, objects));
                    // None of this class in any window, and none of its samples.
                    if objects == 0 && bytes == 0 {
                        gathered.reference.strata.remove(&stratum);
                    }
                }
            }
            gathered.reference.clusters.insert(process, clusters);
            factors.insert(id, of_groups);
        }
        // Where no window was, there is nothing that a sample could be missing of.
        let clusters = &gathered.reference.clusters;
        let is_met = |process: &u32| clusters.get(process).is_some_and(|of| of.windows > 0);
        gathered.reference.strata.retain(|of, _| is_met(&of.process));
        for (id, stack, sums) in self.ingest.clustered.rows() {
            let Some(process) = index.get(&id) else { continue };
            let (Some(factors), Some(extent)) = (factors.get(&id), extents.get(&id)) else {
                continue;
            };
            let row = gathered.rows.entry((id, stack)).or_default();
            let (mut sum, mut corrected) = (0.0, 0.0);
            for (group, sums) in sums {
                let factor =
                    factors.get(usize::from(*group)).copied().unwrap_or([extent.factor(); 2]);
                row.add_cluster(*process, *group, [sums[0] * factor[0], sums[1] * factor[1]]);
                sum += sums[0] * extent.factor();
                corrected += sums[0] * factor[0];
            }
            // Its moments are of all groups together.
            let correction = if sum > 0.0 { corrected / sum } else { 1.0 };
            row.extend_process(*process, correction);
        }
    }

    /// What is to be said of windows.
    pub(super) fn window_notes(&self, gathered: &Gathered) -> Vec<String> {
        let Some(budget) = self.config.budget else { return Vec::new() };
        let mut sum = Met::default();
        for id in &gathered.processes {
            let of = self.ingest.clustered.groups(*id);
            let clock = self.clock_of(*id).ticks;
            sum.add(of, clock, self.extent(*id).is_some());
            if let Some(period_ns) = self.next_windows_ns(*id) {
                sum.periods_ns.push(period_ns);
            }
        }
        let unit = self.kernel.duties.as_ref().map_or(0.0, |duties| duties.timers().unit(false));
        let mut notes = sum.notes(&budget.to_string(), unit);
        let mut corrections = gathered.reference.clusters.values().map(|of| of.correction);
        if let (Some(Some(only)), None) = (corrections.next(), corrections.next()) {
            let told_by = match gathered.processes[..] {
                [id] if only.tallied > 0 => self.word_name(id, only.tally),
                [id] => self.marker_names(id),
                _ => None,
            };
            notes.push(met::correction(&only, told_by.as_deref()));
        }
        notes
    }
}

/// Of a process that was not met by a window: a cluster in which nothing was seen.
fn unmet(clock: f64) -> Clusters {
    let groups =
        if clock > 0.0 { vec![Cluster { length: clock, total: [0.0; 2] }] } else { Vec::new() };
    Clusters { groups, ..Clusters::default() }
}
