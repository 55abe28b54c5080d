//! Python frames: which processes have them, and how they are merged into the stacks of samples.

use super::ingest::Ingest;
use crate::bpf::ring::PythonStack;
use crate::inspect::mappings::{self, Mapping};
use crate::pipeline::processes::process::ProfiledProcess;
use crate::pipeline::worker::Worker;
use crate::unwind::{Merged, ModuleId, NativeFrames, Python, PythonError, UnwindEnd};
use sampler_common::counters::Outcome;
use sampler_common::note::BlindSpot;
use sampler_common::wire::AllocationRecord;
use std::collections::VecDeque;

/// Bound of Python stacks whose sample has not arrived yet: one for each CPU that can be between
/// two records.
/// The record of a sample may be lost, so some stacks wait in vain. At the bound the oldest are
/// dropped.
const MAX_WAITING: usize = 512;

/// Python stacks whose sample has not arrived yet.
pub(in crate::pipeline) struct WaitingPython {
    stacks: VecDeque<PythonStack>,
    /// What becomes of the native frames that the Python frames replace.
    pub(in crate::pipeline) native: NativeFrames,
}

impl Default for WaitingPython {
    fn default() -> WaitingPython {
        WaitingPython { stacks: VecDeque::new(), native: NativeFrames::Replaced }
    }
}

impl WaitingPython {
    pub(in crate::pipeline) fn push(&mut self, stack: PythonStack) {
        if self.stacks.len() >= MAX_WAITING {
            self.stacks.pop_front();
        }
        self.stacks.push_back(stack);
    }

    /// Takes out the Python stack of a sample.
    fn take(&mut self, record: &AllocationRecord) -> Option<PythonStack> {
        let is_it = |of: &PythonStack| (of.sample, of.space) == (record.sample, record.space);
        let at = self.stacks.iter().position(is_it)?;
        self.stacks.remove(at)
    }
}

/// The interpreter of a program image.
pub(in crate::pipeline) struct Interpreter {
    /// The image's generation.
    generation: u32,
    /// The interpreter, or why its frames are not shown.
    python: Result<Python, BlindSpot>,
}

impl ProfiledProcess {
    /// The module of the process's Python code.
    pub(in crate::pipeline) fn python_module(&self) -> Option<ModuleId> {
        self.interpreter.as_ref()?.python.as_ref().ok().map(Python::module)
    }

    /// Whether samples of the current image may have Python frames.
    pub(super) fn has_python(&self) -> bool {
        let of = self.interpreter.as_ref().filter(|of| of.generation == self.generation);
        of.is_some_and(|of| of.python.is_ok())
    }
}

impl Worker {
    /// Searches the process in a slot for a Python interpreter, unless the result is known.
    pub(in crate::pipeline) fn find_python(&mut self, slot: u32, mappings: &[Mapping]) {
        let Ingest { table, processes, modules, .. } = &mut self.ingest;
        let Some(profiled) = table.get_mut(slot) else { return };
        let (by, generation) = (profiled.holder(processes), profiled.generation);
        if profiled.interpreter.as_ref().is_none_or(|of| of.generation != generation) {
            let python = match Python::find(by, mappings, modules) {
                None | Some(Err(PythonError::NotReady(_))) => return,
                Some(found) => found.map_err(|error| BlindSpot::from(error.to_string())),
            };
            // The image has been replaced meanwhile: nothing is known of the new one.
            if self.kernel.slots.generation(slot) != generation {
                return;
            }
            if let Ok(python) = &python {
                self.kernel.python.set(slot, &python.for_kernel(generation));
            }
            profiled.interpreter = Some(Interpreter { generation, python });
        }
        // Every inspection makes the list of blind spots anew.
        let refused = profiled.interpreter.as_ref().and_then(|of| of.python.as_ref().err());
        let blind_spots = &mut processes.get_mut(profiled.id).blind_spots;
        blind_spots.extend(refused.filter(|of| !blind_spots.contains(of)).cloned());
    }

    /// As [`Worker::find_python`]; reads the mappings itself.
    pub(in crate::pipeline) fn find_python_now(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        if let Ok(mappings) = mappings::read_some(profiled.pid) {
            self.find_python(slot, &mappings);
        }
    }
}

impl Ingest {
    /// Merges the Python frames of a sample, if it has some, into its stack in `frames`.
    pub(super) fn merge_python(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &AllocationRecord,
        end: UnwindEnd,
    ) {
        let Some(stack) = self.python.take(record) else { return };
        let generation = profiled.generation;
        let is_current = |of: &&mut Interpreter| {
            of.generation == generation && record.space.generation == generation
        };
        let interpreter = profiled.interpreter.as_mut().filter(is_current);
        let (Some(Interpreter { python: Ok(python), .. }), Some(image)) =
            (interpreter, &mut profiled.image)
        else {
            self.outcomes.add(Outcome::PythonUnread, 1);
            return;
        };
        let (frames, modules) = (&mut self.frames, &mut self.modules);
        let (read, native) = ((&*stack.frames, stack.flags), self.python.native);
        let outcome = match python.merge(image, modules, read, frames, end, native) {
            Merged::Whole => None,
            Merged::Cut => Some(Outcome::PythonCut),
            Merged::Unread => Some(Outcome::PythonUnread),
            Merged::Unmatched => {
                self.outcomes.add(Outcome::PythonUnmatched, 1);
                return;
            }
        };
        self.outcomes.add(Outcome::PythonStack, 1);
        outcome.into_iter().for_each(|outcome| self.outcomes.add(outcome, 1));
    }
}
