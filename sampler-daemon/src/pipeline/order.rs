//! The rows of a raw profile in the order that people read them, cut to the largest ones. Away from the worker's thread:
//! some estimators make every estimate first.

use super::raw::{RawFrame, RawProfile, RawRow};
use sampler_common::estimate::{Estimator, Row, Stratum};
use sampler_common::profile::{Kind, Quantities};
use std::collections::BTreeMap;

/// The frame of what no stack can take.
const UNSAMPLED: &str = "[unsampled]";

/// Adds what is unsampled, orders the rows by falling estimated bytes, and cuts them and their frames; the number of rows before.
pub(super) fn ordered(raw: &mut RawProfile, unsampled: &Row) -> usize {
    if raw.request.kind == Kind::Alloc {
        add_unsampled(raw, unsampled);
    }
    let mut rows: Vec<(f64, RawRow)> =
        std::mem::take(&mut raw.rows).into_iter().map(|row| (value(raw, &row.row), row)).collect();
    // Stable: of equal ones the order is fixed already.
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let total = rows.len();
    let top = if raw.request.top > 0 { raw.request.top } else { total };
    raw.rows = rows.into_iter().take(top).map(|(_, row)| row).collect();
    if raw.rows.len() < total {
        cut_frames(raw);
    }
    total
}

/// Estimated bytes of the kind asked for.
fn value(raw: &RawProfile, row: &Row) -> f64 {
    let kind = raw.request.kind;
    if raw.estimator == Estimator::Weighted {
        let total = row.total();
        return match kind {
            Kind::Alloc => total.alloc_space.sum,
            Kind::Live | Kind::Peak | Kind::Mapped => total.inuse_space.sum,
        };
    }
    let quantities = Quantities::of_row(row, &raw.reference, raw.estimator, raw.request.confidence);
    quantities.space(kind).estimate.value
}

/// A row for each process that has any.
fn add_unsampled(raw: &mut RawProfile, unsampled: &Row) {
    let mut rows: BTreeMap<u32, Row> = BTreeMap::new();
    for (stratum, moments) in unsampled.strata() {
        let Stratum { process, .. } = stratum;
        rows.entry(process).or_default().stratum(stratum).add(moments);
    }
    if rows.is_empty() {
        return;
    }
    let frame = raw.frames.len() as u32;
    raw.frames.push(RawFrame::Note(UNSAMPLED));
    raw.rows.extend(rows.into_iter().map(|(process, row)| {
        let pid = raw.pids.get(process as usize).copied().unwrap_or(0);
        RawRow { pid, frames: vec![frame], row }
    }));
}

/// Keeps the frames that rows still have.
fn cut_frames(raw: &mut RawProfile) {
    let mut numbers: Vec<Option<u32>> = vec![None; raw.frames.len()];
    let mut frames = Vec::new();
    for index in raw.rows.iter_mut().flat_map(|row| &mut row.frames) {
        let old = *index as usize;
        *index = *numbers[old].get_or_insert_with(|| {
            frames.push(raw.frames[old].clone());
            frames.len() as u32 - 1
        });
    }
    raw.frames = frames;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{ProfileRequest, Scope};
    use crate::store::Selector;
    use sampler_common::estimate::{Confidence, Reference, Sample};
    use sampler_common::profile::Exact;
    use sampler_common::sampling::{Rate, Strategy};
    use std::time::SystemTime;

    fn row(class: u8, size: u64) -> Row {
        let mut row = Row::default();
        let sample = Sample::geometric(size, Rate::ALWAYS);
        row.stratum(Stratum { process: 0, class }).add_allocation(&sample);
        row
    }

    /// Rows of 10, 30, 20 and 30 bytes, whose leaf frames are those numbers.
    fn raw(kind: Kind, top: usize) -> RawProfile {
        let notes = ["root", "10", "30", "20", "30 too"];
        let rows = [10, 30, 20, 30].into_iter().zip(1..);
        let rows =
            rows.map(|(size, frame)| RawRow { pid: 7, frames: vec![frame, 0], row: row(2, size) });
        RawProfile {
            request: ProfileRequest {
                kind,
                selector: Selector::default(),
                confidence: Confidence::DEFAULT,
                estimator: None,
                top,
                scope: Scope::ALL,
            },
            estimator: Estimator::Weighted,
            strategies: vec![Strategy::Geometric],
            time: SystemTime::UNIX_EPOCH,
            duration_ns: 0,
            window: None,
            interval_bytes: 1.0,
            pids: vec![7],
            rows: rows.collect(),
            frames: notes.map(RawFrame::Note).to_vec(),
            totals: Row::default(),
            reference: Reference::default(),
            exact: Some(Exact::default()),
            lost: vec![],
            notes: vec![],
            running: vec![],
            cost: Default::default(),
        }
    }

    fn leaves(raw: &RawProfile) -> Vec<&'static str> {
        let name = |row: &RawRow| match raw.frames[row.frames[0] as usize] {
            RawFrame::Note(name) => name,
            RawFrame::Code(..) => "code",
        };
        raw.rows.iter().map(name).collect()
    }

    #[test]
    fn rows_fall_and_are_cut_with_their_frames() {
        let mut all = raw(Kind::Alloc, 0);
        assert_eq!(ordered(&mut all, &Row::default()), 4);
        assert_eq!(leaves(&all), ["30", "30 too", "20", "10"]);
        let mut two = raw(Kind::Alloc, 2);
        assert_eq!(ordered(&mut two, &Row::default()), 4);
        assert_eq!((leaves(&two), two.frames.len()), (vec!["30", "30 too"], 3));
        assert!(two.rows.iter().all(|row| row.frames[1] == two.rows[0].frames[1]));
    }

    #[test]
    fn what_is_unsampled_is_a_row_of_the_process() {
        let unsampled = row(9, 25);
        let mut alloc = raw(Kind::Alloc, 0);
        assert_eq!(ordered(&mut alloc, &unsampled), 5);
        assert_eq!(leaves(&alloc), ["30", "30 too", UNSAMPLED, "20", "10"]);
        assert_eq!((alloc.rows[2].pid, &alloc.rows[2].row), (7, &unsampled));
        let mut live = raw(Kind::Live, 0);
        assert_eq!(ordered(&mut live, &unsampled), 4);
    }
}
