//! A page: a list, what is marked in it, and what is left out of it.

use super::cursor::Cursor;
use crate::top::columns::{Column, FUNCTIONS, PROCESSES, STACKS, Spec};
use crate::top::rows;

/// What a page lists.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::top) enum List {
    /// All processes.
    Processes,
    /// Functions of the process that was opened.
    Functions,
    /// Its stacks; those through a function, if one was opened.
    Stacks(Option<rows::Key>),
    /// The frames of one stack.
    Frames(rows::Key),
}

/// What a line is about.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::top) enum Item {
    Process(u32),
    Function(rows::Key),
    Stack(rows::Key),
}

/// A list as it is looked at.
#[derive(Clone, Debug)]
pub(in crate::top) struct Page {
    pub(in crate::top) list: List,
    pub(in crate::top) cursor: Cursor<Item>,
    /// Only lines with this text are shown.
    pub(in crate::top) filter: String,
    /// What it is sorted by; `None`: what the kind suggests.
    pub(in crate::top) sorted: Option<Column>,
    /// The other way round.
    pub(in crate::top) reversed: bool,
}

impl Page {
    pub(in crate::top) fn of(list: List) -> Page {
        let cursor = Cursor::default();
        Page { list, cursor, filter: String::new(), sorted: None, reversed: false }
    }

    /// Its columns; none where lines are text.
    pub(in crate::top) fn specs(&self) -> &'static [Spec] {
        match self.list {
            List::Processes => PROCESSES,
            List::Functions => FUNCTIONS,
            List::Stacks(_) => STACKS,
            List::Frames(_) => &[],
        }
    }
}
