//! The data of some processes at one moment: their rows in strata, and the reference of estimates.

use super::scope::{Borders, Scope};
use crate::pipeline::clock::Clocks;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::windows::Expansions;
use crate::pipeline::worker::Worker;
use crate::store::windows::Window;
use crate::store::{ClassTotals, LiveSample, ProcessId, ProcessRecord, SizeLimits, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Reference, Row, Stratum, StratumTotals};
use sampler_common::limits::CLASSES;
use sampler_common::profile::{self, Exact, Kind};
use sampler_common::sampling;

/// Some processes at one moment.
pub(in crate::pipeline) struct Gathered {
    /// The processes. The index here is [`Stratum::process`].
    pub(in crate::pipeline) processes: Vec<ProcessId>,
    /// Every row, samples without a stack under [`StackId::LOST`].
    pub(in crate::pipeline) rows: FxHashMap<(ProcessId, StackId), Row>,
    /// The samples whose record was lost; `rows` contain them.
    pub(super) lost: Row,
    /// Sums over all rows, and exact totals.
    pub(in crate::pipeline) reference: Reference,
    /// Exact totals over all size classes; `None` if size limits cut one of them.
    pub(super) exact: Option<Exact>,
    /// Processes whose exact totals could not be read.
    pub(super) inexact: Vec<ProcessId>,
    /// Processes of which no call was ever seen.
    pub(super) uncalled: Vec<ProcessId>,
    /// The time window actually used.
    pub(super) window: Option<profile::Window>,
    /// The borders of the time window.
    pub(super) borders: Option<Borders>,
    /// The moment of gathering.
    pub(super) clocks: Clocks,
}

impl Worker {
    /// Gathers everything in scope that returned before the worker last caught up.
    ///
    /// # Errors
    /// One line, if there is no such window.
    pub(super) fn gather(
        &self,
        processes: Vec<ProcessId>,
        kind: Kind,
        scope: &Scope,
    ) -> Result<Gathered, String> {
        let Some(requested) = scope.window else {
            return Ok(self.gather_now(processes, kind, scope, None));
        };
        self.ingest.check_end(requested, &processes)?;
        let window = self.ingest.window(requested, self.clock.now())?;
        Ok(self.gather_now(processes, kind, scope, Some(&window)))
    }

    /// Gathers the present data, in a time window that is known already.
    pub(super) fn gather_now(
        &self,
        processes: Vec<ProcessId>,
        kind: Kind,
        scope: &Scope,
        window: Option<&Window>,
    ) -> Gathered {
        let clocks = self.clock.now();
        let exact = match window {
            None => self.exact(&processes),
            Some(window) => {
                let mut exact = window.exact();
                let of = |id: &ProcessId| Some(exact.remove(id).unwrap_or_default());
                processes.iter().map(of).collect()
            }
        };
        let mut gathered = Gathered {
            rows: FxHashMap::default(),
            lost: Row::default(),
            reference: Reference {
                held_unknown: self.config.is_held_unknown(),
                // Such a function may have been called by a process that was never inspected.
                allocations_unseen: self.links.shared.leaves_allocations(),
                ..Reference::default()
            },
            exact: Some(Exact::default()).filter(|_| scope.sizes.cuts_no_class()),
            inexact: Vec::new(),
            uncalled: Vec::new(),
            window: window.map(|window| profile::Window {
                start_unix_ns: clocks.to_unix(window.start_ns),
                end_unix_ns: clocks.to_unix(window.end_ns),
            }),
            borders: window.map(Borders::from),
            clocks,
            processes,
        };
        let index: FxHashMap<ProcessId, u32> =
            (0..).zip(&gathered.processes).map(|(index, id)| (*id, index)).collect();
        let expansions = self.expansions(&gathered.processes);
        match window {
            None => self.add_allocated(&mut gathered, &index, scope, &expansions),
            Some(window) => gathered.add_window(window, &index, scope),
        }
        self.ingest.add_held(&mut gathered, &index, kind, scope, window);
        let Gathered { rows, reference, .. } = &mut gathered;
        rows.values().for_each(|row| reference.add(row));
        let by_band = window.map(Window::by_band);
        for (index, exact) in exact.iter().enumerate() {
            let id = gathered.processes[index];
            let record = self.ingest.processes.get(id);
            gathered.reference.allocations_unseen |= record.has_unseen_allocations;
            // Our probes do not see all allocations of a process that samples by itself. Nor do
            // they see allocations outside of windows.
            let all_seen = !record.sampling.samples_itself && self.config.windows.is_none();
            let exact = exact.as_ref().filter(|_| all_seen);
            let is_uncalled = |of: &&ClassTotals| of.objects.iter().all(|objects| *objects == 0);
            if window.is_none() && exact.filter(is_uncalled).is_some() {
                gathered.uncalled.push(id);
            }
            gathered.add_totals(index as u32, record, exact, &scope.sizes);
            // For data from windows, the rarest rate applies to all.
            if self.config.windows.is_none() {
                gathered.add_epochs((index as u32, id), record, exact, by_band.as_ref());
            }
            if exact.is_none() {
                gathered.inexact.push(id);
                // The total without this process is not the total of all.
                gathered.exact = None;
            }
        }
        self.add_clusters(&mut gathered, &index, &expansions);
        gathered.forget_rates();
        gathered
    }

    /// Adds everything allocated since the attach: samples, and lost samples.
    fn add_allocated(
        &self,
        gathered: &mut Gathered,
        index: &Index,
        scope: &Scope,
        expansions: &Expansions,
    ) {
        for (key, moments) in self.ingest.rows.iter() {
            let Some(process) = index.get(&key.process) else { continue };
            if scope.sizes.has(key.cell) {
                let stratum = Stratum { process: *process, class: key.cell.class };
                let moments = expansions
                    .get(&key.process)
                    .map_or(*moments, |of| moments.extended(of.factor()));
                gathered.row(key.process, key.stack).stratum(stratum).add(&moments);
                if key.stack == StackId::LOST {
                    gathered.lost.stratum(stratum).add(&moments);
                }
            }
        }
        // Lost samples of windows are added when their window ends.
        if self.config.windows.is_some() {
            return;
        }
        let lost = self.lost(&gathered.processes);
        let ids = gathered.processes.clone();
        for (process, (id, lost)) in (0..).zip(ids.into_iter().zip(lost)) {
            for (cell, moments) in lost.iter().filter(|(cell, _)| scope.sizes.has(*cell)) {
                let stratum = Stratum { process, class: cell.class };
                gathered.row(id, StackId::LOST).stratum(stratum).add(moments);
                gathered.lost.stratum(stratum).add(moments);
            }
        }
    }
}

impl Ingest {
    /// Adds live samples, or those of the peak.
    fn add_held(
        &self,
        gathered: &mut Gathered,
        index: &Index,
        kind: Kind,
        scope: &Scope,
        window: Option<&Window>,
    ) {
        let now_ns = gathered.clocks.now_ns;
        let add = |live: &LiveSample| {
            let Some(process) = index.get(&live.process) else { return };
            let is_requested = window.is_none_or(|window| window.has(live.time_ns))
                && scope.has_size(live.sample.size)
                && scope.has_age(now_ns.saturating_sub(live.time_ns));
            if is_requested {
                let class = sampling::class(live.sample.size) as u8;
                let stratum = Stratum { process: *process, class };
                gathered.row(live.process, live.stack).stratum(stratum).add_live(&live.sample);
            }
        };
        match kind {
            Kind::Alloc | Kind::Live => {
                let held = self.live.iter().map(|(_, live)| live);
                held.chain(self.live.left_behind()).for_each(add);
            }
            Kind::Peak => self.live.at_peak().for_each(add),
            // Mapped memory is another kind of memory.
            Kind::Mapped => {}
        }
    }
}

/// Indices of processes among the gathered ones.
type Index = FxHashMap<ProcessId, u32>;

impl Gathered {
    /// Exact totals of one process; `None` if they are unknown.
    pub(super) fn exact_of(&self, process: u32) -> Option<Exact> {
        // With windows no total is exact. A process without a window has no strata, and their sum
        // would be an exact 0.
        if self.reference.clusters.contains_key(&process) {
            return None;
        }
        let each = self.reference.strata_of(process).map(|(_, totals)| {
            let (alloc_space, alloc_objects) = totals.exact?;
            Some(Exact { alloc_objects, alloc_space })
        });
        each.sum()
    }

    fn row(&mut self, process: ProcessId, stack: StackId) -> &mut Row {
        self.rows.entry((process, stack)).or_default()
    }

    /// Adds everything allocated in a window.
    fn add_window(&mut self, window: &Window, index: &Index, scope: &Scope) {
        for (key, allocated) in window.rows() {
            let Some(process) = index.get(&key.process) else { continue };
            if !scope.sizes.has(key.cell) {
                continue;
            }
            let stratum = Stratum { process: *process, class: key.cell.class };
            allocated.add_to(self.row(key.process, key.stack).stratum(stratum));
            if key.stack == StackId::LOST {
                allocated.add_to(self.lost.stratum(stratum));
            }
        }
    }

    /// Adds the exact totals of a process, and what of the totals goes unseen.
    fn add_totals(
        &mut self,
        process: u32,
        record: &ProcessRecord,
        exact: Option<&ClassTotals>,
        sizes: &SizeLimits,
    ) {
        let sampling = &*record.sampling;
        self.reference.interval_bytes =
            self.reference.interval_bytes.max(sampling.largest_interval());
        for class in (0..CLASSES).filter(|class| sizes.meets_class(*class)) {
            let exact = exact.map(|totals| (totals.bytes[class], totals.objects[class]));
            let stratum = Stratum { process, class: class as u8 };
            // Certainly nothing was allocated in this stratum.
            if exact == Some((0, 0)) && !self.reference.strata.contains_key(&stratum) {
                continue;
            }
            let exact = exact.filter(|_| sizes.has_class(class));
            if let (Some(sum), Some((bytes, objects))) = (&mut self.exact, exact) {
                sum.alloc_space += bytes;
                sum.alloc_objects += objects;
            }
            let totals: &mut StratumTotals = self.reference.strata.entry(stratum).or_default();
            totals.exact = exact;
            (totals.unseen_objects, totals.unseen_bytes) = sampling.passes(class);
        }
    }
}
