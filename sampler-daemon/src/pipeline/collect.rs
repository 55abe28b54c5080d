//! Forgets what no process needs any more, by a garbage collection of stacks and modules. Months of
//! short processes fill no table.

use super::processes::process::ProfiledProcess;
use super::records::ingest::Ingest;
use crate::store::give_up::give_up;
use crate::store::stacks::{MAX_STACKS, StackFrame};
use crate::store::{Moves, ProcessId};
use crate::unwind::{Image, ModuleId};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::counters::Outcome;
use std::time::{Duration, Instant};

/// Least time between two collections: a collection visits all tables of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// The last collection, and what has happened since.
#[derive(Debug, Default)]
pub(super) struct LastCollection {
    at: Option<Instant>,
    /// Whether a process has ended or replaced its program.
    pub(super) has_ended: bool,
}

impl Ingest {
    /// Forgets unneeded stacks and unmapped modules, if there may be any. Returns the files to
    /// close, with the offsets that stacks need in them.
    pub(super) fn collect(&mut self) -> Option<Vec<(ModuleId, Vec<u64>)>> {
        let may_have =
            self.last_collection.has_ended || self.stacks.has_grown() || self.modules.has_grown();
        if !may_have || self.last_collection.at.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        if self.stacks.has_grown() {
            self.collect_stacks();
        }
        let to_close = self.collect_modules();
        // Closing takes a while, or has to be requested once more.
        let has_ended = !to_close.is_empty();
        self.last_collection = LastCollection { at: Some(Instant::now()), has_ended };
        Some(to_close)
    }

    /// The images of all processes.
    pub(super) fn images(&self) -> impl Iterator<Item = &Image> {
        self.table.values().flat_map(|profiled| {
            profiled.image.iter().chain(profiled.earlier.iter().map(|(_, image)| image))
        })
    }

    /// Forgets modules that no image has and no stack needs, with everything keyed by them. Returns
    /// the files to close.
    fn collect_modules(&mut self) -> Vec<(ModuleId, Vec<u64>)> {
        let python = self.table.values().filter_map(ProfiledProcess::python_module);
        let mapped: FxHashSet<ModuleId> =
            self.images().flat_map(Image::modules).chain(python).collect();
        let frames = self.stacks.frames().filter_map(StackFrame::code);
        let needed: FxHashSet<ModuleId> = frames.map(|frame| frame.module).collect();
        self.modules.collect(&mapped, &needed);
        let is_kept = |id| mapped.contains(&id) || needed.contains(&id);
        self.probe_names.retain(|frame, _| is_kept(frame.module));
        self.allocator_texts.retain(is_kept);
        let to_close = self.modules.to_close(&mapped).into_iter().map(|id| (id, Vec::new()));
        let mut to_close: FxHashMap<ModuleId, Vec<u64>> = to_close.collect();
        if !to_close.is_empty() {
            for frame in self.stacks.frames().filter_map(StackFrame::code) {
                to_close.entry(frame.module).and_modify(|offsets| offsets.push(frame.offset));
            }
        }
        to_close.into_iter().collect()
    }

    /// Forgets unneeded stacks. If exited processes fill a quarter of the table, they give up some
    /// of their stacks.
    fn collect_stacks(&mut self) {
        self.forget_stacks();
        let records = self.processes.iter().filter(|(_, record)| record.exited.is_some());
        let exited: FxHashSet<ProcessId> = records.map(|(process, _)| process).collect();
        let has_exited = |process| exited.contains(&process);
        let mut room = MAX_STACKS / 4;
        while room > 0 && self.stacks.is_filled_by(has_exited) {
            // Deep stacks take more room than others.
            room /= 2;
            let tables = [&self.rows, &self.mapped.rows].into_iter();
            let (moves, discarded) = give_up(tables, has_exited, room);
            self.move_all(&moves);
            self.outcomes.add(Outcome::StacksDiscarded, discarded);
            self.forget_stacks();
        }
    }

    /// Moves all data of processes and stacks that have moved.
    pub(super) fn move_all(&mut self, moves: &Moves) {
        let holder_of = |process| self.processes.holder(process);
        self.rows.fold(moves, holder_of);
        self.windows.fold(moves);
        self.live.fold(moves, holder_of);
        self.lifetimes.fold(moves, holder_of);
        self.mapped.fold(moves, holder_of);
        self.window_samples.fold(moves);
    }

    /// Forgets unneeded stacks.
    fn forget_stacks(&mut self) {
        let mut needs = self.stacks.needs();
        let store = self.rows.stacks().chain(self.windows.stacks()).chain(self.live.stacks());
        let store = store.chain(self.lifetimes.stacks()).chain(self.mapped.stacks());
        for (process, stack) in store.chain(self.window_samples.stacks()) {
            self.stacks.need(&mut needs, process, stack);
        }
        for (space, stack) in self.stack_cache.stacks() {
            // Ids of processes that have left their slot stay valid for a moment.
            let process = self.table.id_of(space.slot).unwrap_or(ProcessId(u32::MAX));
            self.stacks.need(&mut needs, process, stack);
        }
        self.stacks.collect(needs, |process| self.processes.holder(process));
    }
}
