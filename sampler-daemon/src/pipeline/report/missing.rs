//! What a profile says of stacks of which frames are, or may be, missing: which part of its bytes have them.

use super::gather::Gathered;
use crate::pipeline::worker::Worker;
use crate::store::stacks::{Note, StackFrame};
use sampler_common::estimate::Row;
use sampler_common::profile::Kind;

/// Smaller parts are not worth a line.
const MIN_SHARE: f64 = 0.01;

/// What stands at the root of such a stack, and what is said of them.
const LINES: [(Note, &str); 2] = [
    (
        Note::Unmapped,
        "have stacks through code that was unmapped before samplerd could look at it: [unmapped code]",
    ),
    (
        Note::Guessed,
        "have stacks through code without unwind information: frames may be missing (Java keeps frame pointers with -XX:+PreserveFramePointer)",
    ),
];

impl Worker {
    /// Lines on the stacks of these rows.
    pub(super) fn missing_notes(&self, gathered: &Gathered, kind: Kind) -> Vec<String> {
        let stacks = &self.ingest.stacks;
        let (mut total, mut parts) = (0.0, [0.0; LINES.len()]);
        for ((_, stack), row) in &gathered.rows {
            let bytes = bytes(row, kind);
            total += bytes;
            let root = stacks.get(*stack).last().map(|number| stacks.frame(*number));
            for ((note, _), part) in LINES.iter().zip(&mut parts) {
                *part += if root == Some(StackFrame::Note(*note)) { bytes } else { 0.0 };
            }
        }
        let lines = LINES.iter().zip(parts).filter(|(_, part)| *part > MIN_SHARE * total);
        lines
            .map(|((_, line), part)| format!("{:.0} % of bytes {line}", part / total * 100.0))
            .collect()
    }
}

/// Bytes that the samples of a row stand for.
fn bytes(row: &Row, kind: Kind) -> f64 {
    let space = row.strata().map(|(_, of)| match kind {
        Kind::Alloc => of.alloc_space.sum,
        Kind::Live | Kind::Peak | Kind::Mapped => of.inuse_space.sum,
    });
    space.sum()
}
