//! Expands what windows saw to all progress of a process.

use crate::pipeline::report::gather::Gathered;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Cluster, Clusters, Confidence, Stratum};
use sampler_common::limits::CLASSES;
use sampler_common::windows::{Group, Groups};

/// Confidence of the upper end of a size class of which a row has no sample. The totals of classes
/// are estimates.
const CLASS_CONFIDENCE: f64 = 0.999;

/// How the windows of a process represent all of its progress.
#[derive(Clone, Copy)]
pub(in crate::pipeline) struct Expansion {
    /// All progress divided by the progress of the strata.
    factor: f64,
    /// Ticks since the last stratum ended; negative if the last stratum has not ended.
    tail: f64,
    /// Ticks of strata divided by ticks of windows; infinite without a window.
    unseen: f64,
}

impl Expansion {
    /// All progress divided by the progress of the strata.
    pub(in crate::pipeline) fn factor(&self) -> f64 {
        self.factor
    }
}

/// The expansions of some processes. A process without a tick has none.
pub(in crate::pipeline) type Expansions = FxHashMap<ProcessId, Expansion>;

impl Worker {
    /// The expansions of processes at this moment. Their clocks go on.
    pub(in crate::pipeline) fn expansions(&self, of: &[ProcessId]) -> Expansions {
        of.iter().filter_map(|id| Some((*id, self.expansion(*id)?))).collect()
    }

    /// The expansion of a process; `None` if its clock has not ticked, or no window was planned.
    pub(in crate::pipeline) fn expansion(&self, id: ProcessId) -> Option<Expansion> {
        let groups = self.ingest.window_samples.groups(id);
        let tail = self.ingest.slot_of(id).map_or(0.0, |slot| self.tail(slot));
        let length = groups.map_or(0.0, Groups::length) + tail;
        let ticks = groups.map_or(0.0, Groups::ticks);
        let factor = (self.ticks_of(id) as f64).max(length) / length;
        (length > 0.0).then_some(Expansion { factor, tail, unseen: length / ticks })
    }

    /// Ticks of a process until now, or until its exit.
    pub(in crate::pipeline) fn ticks_of(&self, id: ProcessId) -> u64 {
        if let Some(ticks) = self.ingest.window_samples.ended(id) {
            return ticks;
        }
        let gates = self.kernel.windows.as_ref();
        self.ingest.slot_of(id).zip(gates).map_or(0, |(slot, gates)| gates.ticks(slot))
    }

    /// Adds the groups of windows, and the sums of rows in each group.
    pub(in crate::pipeline) fn add_clusters(
        &self,
        gathered: &mut Gathered,
        index: &FxHashMap<ProcessId, u32>,
        expansions: &Expansions,
    ) {
        if !self.ingest.window_samples.is_on {
            return;
        }
        for (process, id) in (0..).zip(gathered.processes.clone()) {
            let groups = self.ingest.window_samples.groups(id).filter(|of| of.windows() > 0);
            let clusters = match expansions.get(&id).zip(groups) {
                Some((expansion, groups)) => {
                    let clusters = groups.clusters(expansion.factor, expansion.tail);
                    gathered.bound_classes(process, groups, &clusters, expansion);
                    clusters
                }
                None => without_windows(self.ticks_of(id)),
            };
            gathered.reference.clusters.insert(process, clusters);
        }
        // Without a window there is nothing of which a sample could be missing.
        let clusters = &gathered.reference.clusters;
        let has_windows = |process: &u32| clusters.get(process).is_some_and(|of| of.windows > 0);
        gathered.reference.strata.retain(|of, _| has_windows(&of.process));
        for (id, stack, sums) in self.ingest.window_samples.rows() {
            let (Some(process), Some(expansion)) = (index.get(&id), expansions.get(&id)) else {
                continue;
            };
            let row = gathered.rows.entry((id, stack)).or_default();
            for (group, sums) in sums {
                row.add_cluster(*process, *group, sums.map(|sum| sum * expansion.factor));
            }
        }
    }
}

impl Gathered {
    /// Bounds the totals of size classes by the windows of their process.
    fn bound_classes(
        &mut self,
        process: u32,
        groups: &Groups,
        clusters: &Clusters,
        expansion: &Expansion,
    ) {
        let confidence = Confidence::new(CLASS_CONFIDENCE).unwrap_or(Confidence::DEFAULT);
        for class in 0..CLASSES {
            let upper = |pick: fn(&Group) -> &[f64; CLASSES]| {
                let each = groups.iter().map(|group| pick(group)[class] * expansion.factor);
                let upper = clusters.upper(&each.collect::<Vec<_>>(), confidence);
                if upper.is_finite() { upper.ceil() as u64 } else { u64::MAX }
            };
            let (bytes, objects) = (upper(|group| &group.bytes), upper(|group| &group.objects));
            let stratum = Stratum { process, class: class as u8 };
            if let Some(totals) = self.reference.strata.get_mut(&stratum) {
                totals.unseen_objects *= expansion.unseen * expansion.factor;
                totals.unseen_bytes *= expansion.unseen * expansion.factor;
                totals.upper_totals = Some((bytes, objects));
                // No window has an allocation of this class.
                if objects == 0 && bytes == 0 {
                    self.reference.strata.remove(&stratum);
                }
            }
        }
    }
}

/// The clusters of a process without a window.
fn without_windows(ticks: u64) -> Clusters {
    let cluster = Cluster { length: ticks as f64, ..Cluster::default() };
    Clusters { groups: if ticks > 0 { vec![cluster] } else { Vec::new() }, windows: 0 }
}
