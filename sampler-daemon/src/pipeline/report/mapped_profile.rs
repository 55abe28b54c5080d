//! The profile of kind mapped: all memory that programs have mapped themselves.

use super::gather::Gathered;
use super::raw::RawProfile;
use super::scope::Borders;
use crate::pipeline::command::ProfileRequest;
use crate::pipeline::worker::Worker;
use crate::store::mapped::{Origin, ProcessTotals};
use crate::store::{ProcessId, windows::Window};
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::estimate::{Estimator, Moments, Reference, Row, RowMoments, Stratum};
use sampler_common::note::{Mapped, Note};
use sampler_common::profile::{self, Exact};
use sampler_common::sampling;
use std::time::SystemTime;

impl Worker {
    /// What each process has mapped; `None` if mappings are not followed.
    pub(super) fn mapped_totals(&self) -> Option<FxHashMap<ProcessId, ProcessTotals>> {
        self.config.settings.mappings.then(|| self.ingest.mapped.totals())
    }

    /// The profile of kind mapped.
    pub(super) fn mapped_profile(
        &self,
        request: ProfileRequest,
        chosen: Vec<ProcessId>,
    ) -> Result<RawProfile, String> {
        if let Some(estimator) = request.estimator {
            let name = estimator.name();
            return Err(format!(
                "estimator {name}: kind mapped is counted, not estimated (leave it out)"
            ));
        }
        request.scope.check(request.kind, Estimator::Exact)?;
        let cost = self.costs(&chosen, request.confidence);
        let lost = self.hits_of(&chosen, Outcome::MappingRingFull);
        let mut gathered = self.gather_mapped(chosen, &request)?;
        // A lost call may have been an unmap as well, so neither mapped nor held memory has an
        // upper end.
        gathered.reference.allocations_unseen = lost > 0;
        let (window, pids) = (gathered.window, self.ingest.pids_of(&gathered.processes));
        let process_names = self.ingest.process_names(&gathered.processes);
        let calls = gathered.reference.row().total().alloc_objects;
        let mut profile = RawProfile {
            estimator: Estimator::Exact,
            strategies: Vec::new(),
            sources: self.ingest.sources_of_mappings(&gathered.processes),
            time: SystemTime::now(),
            duration_ns: window
                .map_or_else(|| self.ingest.duration_ns(&gathered.processes), |of| of.length_ns()),
            window,
            borders: None,
            interval_bytes: 1.0,
            pids,
            programs: Vec::new(),
            process_names,
            running: Vec::new(),
            compared: Vec::new(),
            cost,
            left_out: 0,
            rows: Vec::new(),
            frames: Vec::new(),
            totals: gathered.reference.row(),
            exact: gathered.exact,
            lost: (lost > 0)
                .then_some((Outcome::MappingRingFull, lost, None))
                .into_iter()
                .collect(),
            notes: self.mapped_notes(&request, lost, &calls),
            reference: Reference::default(),
            request,
        };
        self.fill_rows(&mut profile, gathered);
        Ok(profile)
    }

    fn gather_mapped(
        &self,
        processes: Vec<ProcessId>,
        request: &ProfileRequest,
    ) -> Result<Gathered, String> {
        let (mapped, scope) = (&self.ingest.mapped, &request.scope);
        let clocks = self.clock.now();
        let window =
            scope.window.map(|requested| requested.of(&mapped.windows, clocks)).transpose()?;
        let index: FxHashMap<ProcessId, u32> =
            (0..).zip(&processes).map(|(index, id)| (*id, index)).collect();
        let mut rows: FxHashMap<_, Row> = FxHashMap::default();
        match &window {
            Some(window) => {
                for (key, allocated) in window.rows().filter(|(key, _)| scope.sizes.has(key.cell)) {
                    let Some(process) = index.get(&key.process) else { continue };
                    let stratum = Stratum { process: *process, class: key.cell.class };
                    let row = rows.entry((key.process, key.stack)).or_default();
                    allocated.add_to(row.stratum(stratum));
                }
            }
            None => {
                for (key, moments) in
                    mapped.rows.iter().filter(|(key, _)| scope.sizes.has(key.cell))
                {
                    let Some(process) = index.get(&key.process) else { continue };
                    let stratum = Stratum { process: *process, class: key.cell.class };
                    rows.entry((key.process, key.stack)).or_default().stratum(stratum).add(moments);
                }
            }
        }
        let in_window = |time_ns| window.as_ref().is_none_or(|window| window.has(time_ns));
        for piece in mapped.held().filter(|piece| piece.origin != Origin::Allocator) {
            let Some(process) = index.get(&piece.process) else { continue };
            let is_requested = in_window(piece.time_ns)
                && scope.has_size(piece.size)
                && scope.has_age(clocks.now_ns.saturating_sub(piece.time_ns));
            if is_requested {
                let class = sampling::class(piece.size) as u8;
                let row = rows.entry((piece.process, piece.stack)).or_default();
                let moments = piece.moments(Some(piece.held));
                row.stratum(Stratum { process: *process, class }).add(&moments);
            }
        }
        Ok(counted(processes, rows, window.as_ref(), clocks))
    }

    /// The notes on mapped memory. `calls`: all calls in the profile.
    fn mapped_notes(&self, request: &ProfileRequest, lost: u64, calls: &Moments) -> Vec<Note> {
        let unsure = Mapped::MaybeAllocators((calls.sum - calls.own) as u64);
        let unreturned = self.kernel_totals().outcome(Outcome::ReturnUnprobed);
        let is_full = self.ingest.mapped.incomplete();
        let notes = [
            Some(Mapped::WholePages),
            Some(Mapped::SinceAttach),
            (calls.sum > calls.own).then_some(unsure),
            (lost > 0).then_some(Mapped::RingFull(lost)),
            (unreturned > 0).then_some(Mapped::ReturnUnprobed(unreturned)),
            is_full.then_some(Mapped::TableFull),
        ];
        let notes = notes.into_iter().flatten().map(Note::Mapped);
        notes.chain(request.scope.notes(request.kind)).collect()
    }
}

/// Rows with their sums. Nothing is unseen.
fn counted(
    processes: Vec<ProcessId>,
    rows: FxHashMap<(ProcessId, crate::store::StackId), Row>,
    window: Option<&Window<'_>>,
    clocks: crate::pipeline::clock::Clocks,
) -> Gathered {
    let mut reference = Reference { interval_bytes: 1.0, ..Reference::default() };
    rows.values().for_each(|row| reference.add(row));
    let mut exact = Exact::default();
    for totals in reference.strata.values_mut() {
        let RowMoments { alloc_space, alloc_objects, .. } = &totals.sampled;
        let (bytes, objects) = (alloc_space.own as u64, alloc_objects.own as u64);
        totals.exact = Some((bytes, objects));
        exact.alloc_space += bytes;
        exact.alloc_objects += objects;
    }
    Gathered {
        processes,
        rows,
        lost: Row::default(),
        reference,
        exact: Some(exact),
        inexact: Vec::new(),
        uncalled: Vec::new(),
        window: window.map(|window| profile::Window {
            start_unix_ns: clocks.to_unix(window.start_ns),
            end_unix_ns: clocks.to_unix(window.end_ns),
        }),
        borders: window.map(Borders::from),
        clocks,
    }
}
