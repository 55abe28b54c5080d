//! Notes on stacks of which frames are, or may be, missing: the share of bytes in such stacks.

use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::report::gather::Gathered;
use crate::store::stacks::{self, StackFrame};
use sampler_common::estimate::Row;
use sampler_common::note::{Loss, Note};
use sampler_common::profile::Kind;

/// Smaller shares are not reported.
const MIN_SHARE: f64 = 0.01;

/// Notes at the root of a stack with missing frames.
const ROOTS: [stacks::Note; 4] = [
    stacks::Note::Unmapped,
    stacks::Note::Guessed,
    stacks::Note::NoUnwindInformation,
    stacks::Note::TableFull,
];

impl Ingest {
    /// Notes on the stacks of these rows.
    pub(in crate::pipeline::report) fn missing_notes(
        &self,
        gathered: &Gathered,
        kind: Kind,
    ) -> impl Iterator<Item = Note> + use<> {
        let stacks = &self.stacks;
        let (mut total, mut parts) = (0.0, [0.0; ROOTS.len()]);
        for ((_, stack), row) in &gathered.rows {
            let bytes = bytes(row, kind);
            total += bytes;
            let root = stacks.get(*stack).last().map(|number| stacks.frame(*number));
            for (note, part) in ROOTS.iter().zip(&mut parts) {
                *part += if root == Some(StackFrame::Note(*note)) { bytes } else { 0.0 };
            }
        }
        let shares = parts.map(|part| (part > MIN_SHARE * total).then_some(part / total));
        let [unmapped, guessed, cut, full] = shares;
        let unmapped = unmapped.map(Loss::UnmappedCode);
        let lost = unmapped.into_iter().chain(guessed.map(Loss::GuessedFrames));
        let lost = lost.chain(cut.map(Loss::CutStacks));
        lost.chain(full.map(Loss::StackTableFull)).map(Note::Loss)
    }
}

/// Bytes that the samples of a row represent.
fn bytes(row: &Row, kind: Kind) -> f64 {
    let space = row.strata().map(|(_, of)| match kind {
        Kind::Alloc => of.alloc_space.sum,
        Kind::Live | Kind::Peak | Kind::Mapped => of.inuse_space.sum,
    });
    space.sum()
}
