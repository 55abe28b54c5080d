//! Python frames of a process that runs CPython: functions, files and lines replace the
//! interpreter's own frames.
//!
//! The kernel side copies addresses of code objects and instructions
//! (`sampler_common::wire::PythonRecord`). This module reads each code object once from the
//! process's memory. A sample has a fingerprint of each code object. The fingerprint proves that
//! the code object now is the one at the time of the sample.

mod code;
mod evaluation;
mod find;
mod line_table;
mod lines;
mod memory;
mod merge;
#[cfg(test)]
mod tests;
mod version;

pub use find::PythonError;
pub use lines::PythonLines;
pub use merge::NativeFrames;

use super::image::{Image, UnwindEnd};
use super::module::{Frame, ModuleId};
use super::modules::Modules;
use crate::inspect::mappings::Mapping;
use code::{Code, Position};
use find::Found;
use lines::PythonLine;
use merge::{Extent, Native, Run, merge, placed};
use rustc_hash::FxHashMap;
use sampler_common::share::Holder;
use sampler_common::wire::{PYTHON_CUT, PYTHON_SEVERAL, PythonFrame, PythonRuntime};
use std::fs::File;
use std::sync::Arc;
use version::Boundary;

/// Most code objects of a process that are remembered. At the bound all are forgotten and read
/// again.
const MAX_CODES: usize = 16 * 1024;

/// Stands for the Python frames beyond those that were read.
const CUT: &str = "[python frames cut]";

/// The interpreter of one program image.
pub struct Python {
    memory: File,
    found: Found,
    lines: Arc<PythonLines>,
    module: ModuleId,
    /// By address and fingerprint; `None` if the code object could not be read.
    codes: FxHashMap<(u64, u64), Option<Code>>,
}

/// The result of merging one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Python frames have replaced the interpreter's frames.
    Whole,
    /// Python frames have replaced the interpreter's frames, but the outer part was cut.
    Cut,
    /// Some of the interpreter's frames stay, because Python frames could not be read.
    Unread,
    /// Python frames and native frames do not fit, so nothing has changed.
    Unmatched,
}

impl Python {
    /// The interpreter that a process has mapped; `None` if it has none.
    pub fn find(
        by: Holder<u32>,
        mappings: &[Mapping],
        modules: &mut Modules,
    ) -> Option<Result<Python, PythonError>> {
        let pid = by.process;
        let mapping = find::mapping_of(mappings)?;
        let failed = |error: std::io::Error| PythonError::File {
            path: mapping.1.to_owned(),
            error: format!("open /proc/{pid}/mem: {error}"),
        };
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed);
        let found = memory.and_then(|memory| Ok((find::find(pid, &memory, mapping)?, memory)));
        Some(found.map(|(found, memory)| {
            let (lines, module) = modules.python(by);
            Python { memory, found, lines, module, codes: FxHashMap::default() }
        }))
    }

    /// The kernel side's values for the program image with this generation.
    pub fn for_kernel(&self, generation: u32) -> PythonRuntime {
        PythonRuntime { generation: generation.into(), ..self.found.kernel }
    }

    /// The module of its frames.
    pub fn module(&self) -> ModuleId {
        self.module
    }

    /// Replaces the interpreter's frames of an unwound stack by Python frames, newest first.
    pub fn merge(
        &mut self,
        image: &mut Image,
        modules: &mut Modules,
        (python, flags): (&[PythonFrame], u32),
        native: &mut Vec<Frame>,
        end: UnwindEnd,
        replaced: NativeFrames,
    ) -> Merged {
        let Found { evaluation, evaluate, .. } = &self.found;
        let Some(evaluate) = image.code(modules, *evaluate) else { return Merged::Unmatched };
        let kind = |frame: &Frame| match frame.module == evaluate.module {
            false => Native::Other,
            true if evaluation.parts.iter().any(|part| part.contains(&frame.offset)) => {
                Native::Evaluation
            }
            true => Native::Interpreter,
        };
        let kinds: Vec<_> = native.iter().map(|frame| (*frame, kind(frame))).collect();
        let extent = match end {
            UnwindEnd::Complete | UnwindEnd::Guessed => Extent::Whole,
            UnwindEnd::Truncated | UnwindEnd::Failed | UnwindEnd::NoMapping => Extent::Cut,
        };
        // A frame that could not be read is the last one.
        let read = python.iter().position(|frame| frame.code == 0).unwrap_or(python.len());
        let is_cut = flags & PYTHON_CUT != 0 || read < python.len();
        let mut runs = self.runs(&python[..read], is_cut, flags & PYTHON_SEVERAL == 0);
        let mut extents = (extent, if is_cut { Extent::Cut } else { Extent::Whole });
        if flags & PYTHON_SEVERAL != 0 {
            // Some of the evaluations may be another interpreter's.
            let ranges = evaluations(&kinds, image.stack_pointers());
            match self.found.offsets.boundary {
                Boundary::Owner(_) => {
                    runs = placed(&runs, &ranges);
                    extents = (Extent::Whole, Extent::Whole);
                    if runs.iter().all(|(run, _)| run.is_none()) {
                        return Merged::Unmatched;
                    }
                }
                // Only if nothing is missing, equal numbers show that there are no others.
                _ if end != UnwindEnd::Complete || is_cut => return Merged::Unmatched,
                _ => {}
            }
        }
        let runs: Vec<_> = runs.into_iter().map(|(run, _)| run).collect();
        let (extent, python_extent) = extents;
        let Some(merged) = merge(&kinds, extent, &runs, python_extent, replaced) else {
            return Merged::Unmatched;
        };
        *native = merged;
        match is_cut {
            _ if runs.contains(&None) || read < python.len() => Merged::Unread,
            true => Merged::Cut,
            false => Merged::Whole,
        }
    }

    /// The frames of each evaluation, and the address of the frame at its end. If the list was cut
    /// within an evaluation, one frame stands for the rest of it.
    fn runs(
        &mut self,
        python: &[PythonFrame],
        is_cut: bool,
        is_one: bool,
    ) -> Vec<(Run<Frame>, u64)> {
        let (mut runs, mut run, mut is_open) = (Vec::new(), Some(Vec::new()), false);
        for frame in python {
            let byte = |offset: u64| (frame.boundary >> (offset % 8 * 8)) as u8;
            let owner = byte(self.found.offsets.owner);
            let is_end = match self.found.offsets.boundary {
                Boundary::Byte(offset) => byte(offset) != 0,
                Boundary::Owner(value) => owner == value,
                Boundary::Every => true,
            };
            let is_function = !is_end || self.found.offsets.boundary != Boundary::Owner(owner);
            is_open = true;
            if is_function {
                run = run.and_then(|mut run| {
                    run.extend(self.frame(frame, owner, is_one)?);
                    Some(run)
                });
            }
            if is_end {
                runs.push((run.replace(Vec::new()), frame.address));
                is_open = false;
            }
        }
        if is_open {
            let cut = if is_cut { self.line(&(CUT.into(), "".into(), 0)) } else { None };
            runs.push((run.map(|run| run.into_iter().chain(cut).collect()), 0));
        }
        runs
    }

    /// The frame of a function, or no frame before its code has begun; `None` if the frame cannot
    /// be read.
    fn frame(&mut self, frame: &PythonFrame, owner: u8, is_one: bool) -> Option<Option<Frame>> {
        let key = (frame.code, frame.fingerprint);
        if !self.codes.contains_key(&key) {
            if self.codes.len() >= MAX_CODES {
                let bytes = self.codes.values().flatten().map(Code::bytes).sum();
                self.codes.clear();
                self.lines.give(bytes);
            }
            let fingerprint = (frame.fingerprint, is_one);
            let code = Code::read(&self.memory, &self.found.offsets, frame.code, fingerprint);
            let code = code.filter(|code| self.lines.take(code.bytes()));
            self.codes.insert(key, code);
        }
        let code = self.codes.get(&key)?.as_ref()?;
        match code.position(frame.instruction, owner)? {
            Position::NotBegun => Some(None),
            Position::Line(line) => {
                let line = (Arc::clone(&code.function), Arc::clone(&code.file), line);
                Some(Some(self.line(&line)?))
            }
        }
    }

    /// The frame at a line; `None` if there is no room for another line.
    fn line(&self, line: &PythonLine) -> Option<Frame> {
        let offset = self.lines.number(line)?;
        Some(Frame { module: self.module, offset })
    }
}

/// The memory on the stack of each evaluation: from the address to before the address. The stack
/// pointers are those of the last frames.
fn evaluations(native: &[(Frame, Native)], stack_pointers: &[u64]) -> Vec<(u64, u64)> {
    let without = native.len().saturating_sub(stack_pointers.len());
    let kinds = native.iter().skip(without).map(|(_, kind)| *kind);
    let ranges = stack_pointers.iter().zip(stack_pointers.iter().skip(1).chain([&0]));
    let of_evaluations = ranges.zip(kinds).filter(|(_, kind)| *kind == Native::Evaluation);
    of_evaluations.map(|((from, before), _)| (*from, *before)).collect()
}
