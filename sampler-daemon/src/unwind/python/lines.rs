//! The lines of Python code in the frames of one process. A frame has the number of its line in
//! this table.

use super::super::generated::name_budget::{NameBudget, NameShare};
use rustc_hash::FxHashMap;
use sampler_common::profile::Line;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Most lines of one process. Frames at further lines cannot be shown.
const MAX_LINES: usize = 64 * 1024;

/// Bytes of a line besides its texts.
const LINE_BYTES: usize = 96;

/// Function, file and line; line 0 if unknown.
pub(super) type PythonLine = (Arc<str>, Arc<str>, u32);

/// The lines of one process.
pub struct PythonLines(Mutex<State>);

struct State {
    lines: Vec<PythonLine>,
    numbers: FxHashMap<PythonLine, u32>,
    share: NameShare,
}

impl fmt::Debug for PythonLines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PythonLines").finish_non_exhaustive()
    }
}

impl PythonLines {
    pub(in super::super) fn within(budget: &Arc<NameBudget>, user: u32) -> PythonLines {
        let share = NameShare::of(budget, user);
        PythonLines(Mutex::new(State { lines: Vec::new(), numbers: FxHashMap::default(), share }))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is valid even after a panic: it is still a list of lines.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a line; `None` if there is no room for another line.
    pub(super) fn number(&self, line: &PythonLine) -> Option<u64> {
        let mut state = self.state();
        if let Some(number) = state.numbers.get(line) {
            return Some(u64::from(*number));
        }
        let number = u32::try_from(state.lines.len()).ok()?;
        let bytes = LINE_BYTES + line.0.len() + line.1.len();
        if state.lines.len() >= MAX_LINES || !state.share.take(bytes) {
            return None;
        }
        state.lines.push(line.clone());
        state.numbers.insert(line.clone(), number);
        Some(u64::from(number))
    }

    /// Gives bytes back to the budget.
    pub(super) fn give(&self, bytes: usize) {
        self.state().share.give(bytes);
    }

    /// Takes bytes for a code object; false if there is no room.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.state().share.take(bytes)
    }

    /// The line with this number.
    pub fn line(&self, number: u64) -> Option<Line> {
        let state = self.state();
        let (function, file, line) = state.lines.get(usize::try_from(number).ok()?)?;
        Some(Line { function: function.to_string(), file: file.to_string(), line: *line })
    }
}
