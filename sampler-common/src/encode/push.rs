//! The data of a push to a backend: the rows of one window, or of one moment, merged by the
//! services that they belong to.
//!
//! A push differs from a profile in a file in two ways. Receivers make a series of every attribute,
//! so no attribute differs by row, process or push. Receivers look up names themselves, so frames
//! have the addresses of their file and not those of a process.

use crate::estimate::RowMoments;
use crate::profile::{Kind, Line};
use std::collections::HashMap;

/// Facts of a service, by key; receivers make labels of them.
pub type Attributes = Vec<(String, String)>;

/// Rows of one kind.
#[derive(Clone, Debug)]
pub struct Push {
    /// [`Kind::Alloc`] in a window, or [`Kind::Live`] at a moment.
    pub kind: Kind,
    /// Start of the window, or the moment, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Length of the window, nanoseconds; 0 for a moment.
    pub duration_ns: u64,
    /// Mean bytes between samples, as in force.
    pub interval_bytes: u64,
    /// Whether the host is among those that send stacks.
    pub draw: Draw,
    /// The services.
    pub services: Vec<Attributes>,
    /// Totals of the services, in their order; may be empty where nobody reads them.
    pub totals: Vec<ServiceTotals>,
    /// Files that contain frames.
    pub files: Vec<CodeFile>,
    /// Frames.
    pub frames: Vec<Frame>,
    /// Rows by service and frames, each once.
    pub stacks: Vec<Stack>,
}

impl Push {
    /// The push without names of code in files, for receivers that look these names up. Some take a
    /// file for symbolized if one of its frames has a name.
    #[must_use]
    pub fn without_names_of_files(&self) -> Push {
        let mut push = self.clone();
        push.frames.iter_mut().filter(|frame| frame.code.is_some()).for_each(|frame| {
            frame.lines.clear();
        });
        push
    }

    /// Memory that the push takes, roughly.
    pub fn bytes(&self) -> usize {
        let text = |text: &str| size_of::<String>() + text.len();
        let attributes = |of: &Attributes| of.iter().map(|(a, b)| text(a) + text(b)).sum::<usize>();
        let lines = |of: &Frame| {
            let line = |of: &Line| text(&of.function) + text(&of.file) + size_of::<u32>();
            size_of::<Frame>() + of.lines.iter().map(line).sum::<usize>()
        };
        let file = |of: &CodeFile| text(&of.path) + text(&of.build_id) + text(&of.htlhash);
        let stack = |of: &Stack| size_of::<Stack>() + size_of_val(&of.frames[..]);
        size_of::<Push>()
            + self.services.iter().map(attributes).sum::<usize>()
            + self.files.iter().map(file).sum::<usize>()
            + self.frames.iter().map(lines).sum::<usize>()
            + self.stacks.iter().map(stack).sum::<usize>()
    }
}

/// The result of drawing the hosts that send stacks. Every host sends its totals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Probability that the host is drawn.
    pub inclusion: f64,
    /// The day for which it was drawn, days since the Unix epoch, in UTC.
    pub day: i32,
    /// Whether it was drawn. If not, the push has no stacks.
    pub is_drawn: bool,
}

impl Draw {
    /// All hosts send stacks.
    pub const ALL: Draw = Draw { inclusion: 1.0, day: 0, is_drawn: true };
}

/// What is known of a service without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTotals {
    /// Number of processes.
    pub processes: u32,
    /// Bytes and objects that were allocated, counted; `None` for a moment, or if they are unknown.
    pub exact: Option<(u64, u64)>,
}

/// A file with code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Path of the file in a process.
    pub path: String,
    /// GNU build id, lower-case hex, empty if the file has none.
    pub build_id: String,
    /// OpenTelemetry's `htlhash` of the file's contents, lower-case hex, empty if unknown.
    pub htlhash: String,
}

/// A frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Index of the frame's file, and the address as the file states it (SVMA). `None`: code
    /// without a file that others could have.
    pub code: Option<(u32, u64)>,
    /// Names of the frame, the innermost inlined function first.
    pub lines: Vec<Line>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Index of the row's service.
    pub service: u32,
    /// Indices of the row's frames, leaf first.
    pub frames: Vec<u32>,
    /// Moments of the row.
    pub moments: RowMoments,
}

impl Stack {
    /// Bytes and objects of `kind`.
    pub(super) fn values(&self, kind: Kind) -> [i64; 2] {
        let of = &self.moments;
        let (space, objects) = match kind {
            Kind::Alloc => (&of.alloc_space, &of.alloc_objects),
            Kind::Live | Kind::Peak | Kind::Mapped => (&of.inuse_space, &of.inuse_objects),
        };
        [space.sum, objects.sum].map(|sum| sum.round() as i64)
    }
}

/// Makes messages of rows: one message, or one for each half if the message is too large.
///
/// `message` returns a message and whether it is too large; `None` if the rows make an empty one.
/// The sums over all messages are those of the rows.
pub(super) fn in_parts<'a, T>(
    stacks: &'a [Stack],
    message: &mut dyn FnMut(&'a [Stack]) -> Option<(T, bool)>,
    parts: &mut Vec<T>,
) {
    match message(stacks) {
        Some((_, true)) if stacks.len() > 1 => {
            let (one, other) = stacks.split_at(stacks.len() / 2);
            in_parts(one, message, parts);
            in_parts(other, message, parts);
        }
        Some((part, _)) => parts.push(part),
        None => {}
    }
}

/// Merges rows of many processes, so that each service and stack has one row; sorted by service.
pub fn merged(rows: impl IntoIterator<Item = Stack>) -> Vec<Stack> {
    let mut sums: HashMap<(u32, Vec<u32>), RowMoments> = HashMap::new();
    for Stack { service, frames, moments } in rows {
        sums.entry((service, frames)).or_default().add(&moments);
    }
    let stack = |((service, frames), moments)| Stack { service, frames, moments };
    let mut stacks: Vec<Stack> = sums.into_iter().map(stack).collect();
    stacks.sort_by(|a, b| (a.service, &a.frames).cmp(&(b.service, &b.frames)));
    stacks
}
