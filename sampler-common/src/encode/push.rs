//! What is pushed to a backend: the rows of one window, or of one moment, merged by the services that they belong to.
//!
//! It differs from a profile in a file. Receivers make a series of every attribute, so it has none that differs by row, process or push. Receivers look up
//! names themselves, so its frames have the addresses of their file and not those of a process.

use crate::estimate::RowMoments;
use crate::profile::{Kind, Line};
use std::collections::HashMap;

/// Facts of a service, by key: what receivers make labels of.
pub type Attributes = Vec<(String, String)>;

/// Rows of one kind.
#[derive(Clone, Debug)]
pub struct Push {
    /// [`Kind::Alloc`] in a window, or [`Kind::Live`] at a moment.
    pub kind: Kind,
    /// When the window began, or the moment, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Length of the window, nanoseconds; 0 of a moment.
    pub duration_ns: u64,
    /// Mean bytes between samples in force.
    pub interval_bytes: u64,
    /// The services.
    pub services: Vec<Attributes>,
    /// Files that frames lie in.
    pub files: Vec<CodeFile>,
    /// Frames.
    pub frames: Vec<Frame>,
    /// Rows by service and frames, each once.
    pub stacks: Vec<Stack>,
}

/// A file with code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Its path in a process.
    pub path: String,
    /// GNU build id, lower-case hex, empty if it has none.
    pub build_id: String,
    /// OpenTelemetry's `htlhash` of its contents, lower-case hex, empty if it is not known.
    pub htlhash: String,
}

/// A frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Its file, an index, and its address as the file states it (SVMA). `None`: code without a file that others could have.
    pub code: Option<(u32, u64)>,
    /// Its names, the innermost inlined function first.
    pub lines: Vec<Line>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Its service, an index.
    pub service: u32,
    /// Its frames, indices, leaf first.
    pub frames: Vec<u32>,
    /// Its moments.
    pub moments: RowMoments,
}

impl Stack {
    /// Bytes and objects that `kind` asks for.
    pub(super) fn values(&self, kind: Kind) -> [i64; 2] {
        let of = &self.moments;
        let (space, objects) = match kind {
            Kind::Alloc => (&of.alloc_space, &of.alloc_objects),
            Kind::Live | Kind::Peak | Kind::Mapped => (&of.inuse_space, &of.inuse_objects),
        };
        [space.sum, objects.sum].map(|sum| sum.round() as i64)
    }
}

/// Makes messages of rows: one, or one of each half where it is too large, as `message` says with it; `None` where there is nothing in it. The sums over
/// all messages are those of the rows.
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

/// Adds rows of many processes, so that those of one service and stack are one; sorted by service.
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
