//! Orders the rows of a raw profile for the reader, and cuts them to the largest ones. This does
//! not run on the worker's thread: some estimators need every estimate first.

use super::raw::{RawFrame, RawProfile, RawRow};
use sampler_common::estimate::{Estimator, Row, RowMoments, Stratum};
use sampler_common::profile::{Kind, Quantities, used};
use std::collections::BTreeMap;

/// The frame of memory that has no stack.
const UNSAMPLED: &str = "[unsampled]";

/// Adds unsampled memory, orders the rows by falling estimated bytes, and cuts the rows and their
/// frames. Returns the number of rows before the cut.
pub(super) fn ordered(raw: &mut RawProfile, unsampled: &Row) -> usize {
    if raw.request.kind == Kind::Alloc {
        add_unsampled(raw, unsampled);
    }
    let mut rows: Vec<(f64, RawRow)> =
        std::mem::take(&mut raw.rows).into_iter().map(|row| (value(raw, &row.row), row)).collect();
    // A stable sort: the order of equal rows is fixed already.
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let total = rows.len() + raw.left_out;
    let top = top_of(raw.request.top, rows.len());
    raw.rows = rows.into_iter().take(top).map(|(_, row)| row).collect();
    if raw.rows.len() < total {
        cut_frames(raw);
    }
    total
}

fn top_of(requested: usize, rows: usize) -> usize {
    if requested > 0 { requested } else { rows }
}

/// Removes all but the `top` largest rows, if their order is known before estimates are made.
/// Returns the number of removed rows.
/// Of equal rows, those with the smaller key stay.
pub(super) fn leave_out<K: Ord>(rows: &mut Vec<(K, Row)>, kind: Kind, top: usize) -> usize {
    if top == 0 || rows.len() <= top {
        return 0;
    }
    let left_out = rows.len() - top;
    let mut order: Vec<(f64, usize)> =
        rows.iter().enumerate().map(|(index, (_, row))| (sum(kind, row), index)).collect();
    order.select_nth_unstable_by(top, |(a, at), (b, bt)| {
        b.total_cmp(a).then_with(|| rows[*at].0.cmp(&rows[*bt].0))
    });
    let mut keep = vec![false; rows.len()];
    order[..top].iter().for_each(|(_, index)| keep[*index] = true);
    let mut keep = keep.into_iter();
    rows.retain(|_| keep.next().unwrap_or(false));
    left_out
}

/// Bytes that the samples of a row represent.
fn sum(kind: Kind, row: &Row) -> f64 {
    let space = |of: &RowMoments| match kind {
        Kind::Alloc => of.alloc_space.sum,
        Kind::Live | Kind::Peak | Kind::Mapped => of.inuse_space.sum,
    };
    row.strata().map(|(_, of)| space(of)).sum()
}

/// Estimated bytes of the requested kind.
fn value(raw: &RawProfile, row: &Row) -> f64 {
    let kind = raw.request.kind;
    if raw.estimator == Estimator::Weighted {
        return sum(kind, row);
    }
    let quantities = Quantities::of_row(row, &raw.reference, raw.estimator, raw.request.confidence);
    quantities.space(kind).estimate.value
}

/// Adds an unsampled row for each process that has one.
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
    let indices = raw.rows.iter_mut().flat_map(|row| &mut row.frames);
    raw.frames = used(std::mem::take(&mut raw.frames), indices);
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

    /// Rows of 10, 30, 20 and 30 bytes. The leaf frame of each is named after its bytes.
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
                functions: 0,
                scope: Scope::ALL,
            },
            estimator: Estimator::Weighted,
            strategies: vec![Strategy::Geometric],
            sources: Vec::new(),
            time: SystemTime::UNIX_EPOCH,
            duration_ns: 0,
            window: None,
            borders: None,
            interval_bytes: 1.0,
            pids: vec![7],
            programs: Vec::new(),
            process_names: BTreeMap::new(),
            rows: rows.collect(),
            left_out: 0,
            frames: notes.map(RawFrame::Note).to_vec(),
            totals: Row::default(),
            reference: Reference::default(),
            exact: Some(Exact::default()),
            lost: vec![],
            notes: vec![],
            compared: Vec::new(),
            running: vec![],
            cost: Default::default(),
        }
    }

    #[test]
    fn small_rows_are_left_out_before_as_after_sorting() {
        let rows = || -> Vec<(u32, Row)> {
            (1..).zip([10, 30, 20, 30]).map(|(key, size)| (key, row(2, size))).collect()
        };
        for (top, kept) in
            [(0, vec![1, 2, 3, 4]), (1, vec![2]), (2, vec![2, 4]), (3, vec![2, 3, 4])]
        {
            let mut rows = rows();
            let left_out = leave_out(&mut rows, Kind::Alloc, top);
            let keys: Vec<u32> = rows.iter().map(|(key, _)| *key).collect();
            assert_eq!((left_out, keys), (4 - kept.len(), kept));
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
    fn rows_are_sorted_and_cut_with_their_frames() {
        let mut all = raw(Kind::Alloc, 0);
        assert_eq!(ordered(&mut all, &Row::default()), 4);
        assert_eq!(leaves(&all), ["30", "30 too", "20", "10"]);
        let mut two = raw(Kind::Alloc, 2);
        assert_eq!(ordered(&mut two, &Row::default()), 4);
        assert_eq!((leaves(&two), two.frames.len()), (vec!["30", "30 too"], 3));
        assert!(two.rows.iter().all(|row| row.frames[1] == two.rows[0].frames[1]));
    }

    #[test]
    fn unsampled_totals_are_a_row_of_the_process() {
        let unsampled = row(9, 25);
        let mut alloc = raw(Kind::Alloc, 0);
        assert_eq!(ordered(&mut alloc, &unsampled), 5);
        assert_eq!(leaves(&alloc), ["30", "30 too", UNSAMPLED, "20", "10"]);
        assert_eq!((alloc.rows[2].pid, &alloc.rows[2].row), (7, &unsampled));
        let mut live = raw(Kind::Live, 0);
        assert_eq!(ordered(&mut live, &unsampled), 4);
    }
}
