//! The pushes of a window as one request, for destinations that take tables.

use super::outbox::Waiting;
use sampler_common::encode::push::Push;
use sampler_common::encode::tables::{EncodeError, Files, WrittenRows, files};
use std::sync::Arc;

/// Most rows of dictionaries that are remembered, 8 bytes each and some for the table. Beyond that,
/// rows are sent again.
const MAX_KNOWN: usize = 1 << 20;

/// The pushes of a window.
pub(super) struct Window {
    pub(super) pushes: Arc<[Push]>,
    bytes: usize,
}

impl Window {
    /// A window to be sent; `None` without pushes.
    pub(super) fn new(pushes: Arc<[Push]>) -> Option<Window> {
        let bytes = pushes.iter().map(Push::bytes).sum();
        (!pushes.is_empty()).then_some(Window { pushes, bytes })
    }

    /// The start of the window.
    pub(super) fn start_unix_ns(&self) -> u64 {
        self.pushes.first().map_or(0, |push| push.start_unix_ns)
    }
}

impl Waiting for Window {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn profiles(&self) -> u64 {
        self.pushes.len() as u64
    }
}

/// The rows of dictionaries that a destination has, and the day for which it has them.
#[derive(Default)]
pub(super) struct Dictionaries {
    known: WrittenRows,
    day: String,
}

impl Dictionaries {
    /// Encodes a window of a day. Rows that the destination has since the day's first window are
    /// left out.
    pub(super) fn encode(&mut self, window: &Window, day: &str) -> Result<Files, EncodeError> {
        if self.day != day || self.known.len() > MAX_KNOWN {
            self.known.clear();
            self.day = day.to_owned();
        }
        files(&window.pushes, &self.known)
    }

    /// The day whose rows the destination has.
    pub(super) fn day(&self) -> &str {
        &self.day
    }

    /// Remembers rows that the destination has now.
    pub(super) fn add(&mut self, rows: &WrittenRows) {
        self.known.add(rows);
    }

    /// Forgets all rows: the destination has them no more.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
