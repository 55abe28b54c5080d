//! A page: a list, its marked line and its filter.

use super::cursor::Cursor;
use crate::top::columns::{Column, FUNCTIONS, PROCESSES, STACKS, Spec};
use crate::top::rows;

/// The list of a page.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::top) enum List {
    /// All processes.
    Processes,
    /// The functions of the open process.
    Functions,
    /// The stacks of the open process; only those through a function, if one was opened.
    Stacks(Option<rows::Key>),
    /// The frames of one stack.
    Frames(rows::Key),
}

/// The item of a line.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::top) enum Item {
    Process(u32),
    Function(rows::Key),
    Stack(rows::Key),
}

/// A list with its cursor, filter and order.
#[derive(Clone, Debug)]
pub(in crate::top) struct Page {
    pub(in crate::top) list: List,
    pub(in crate::top) cursor: Cursor<Item>,
    /// Only lines with this text are shown.
    pub(in crate::top) filter: String,
    /// The column that the page is sorted by; `None`: the default of the kind.
    pub(in crate::top) sorted: Option<Column>,
    /// Whether the order is reversed.
    pub(in crate::top) reversed: bool,
}

impl Page {
    pub(in crate::top) fn of(list: List) -> Page {
        let cursor = Cursor::default();
        Page { list, cursor, filter: String::new(), sorted: None, reversed: false }
    }

    /// Returns the columns of the page; none if its lines are text.
    pub(in crate::top) fn specs(&self) -> &'static [Spec] {
        match self.list {
            List::Processes => PROCESSES,
            List::Functions => FUNCTIONS,
            List::Stacks(_) => STACKS,
            List::Frames(_) => &[],
        }
    }
}
