//! The other side of a row that has most of what there is: all that is not in it.
//!
//! Plainly: the row and the others sum to the exact total, so that the row's lower end is what the others' upper end leaves. Where the row has a
//! hundred samples and the others none, its own variance says next to nothing; what is open is how much the others may have
//! had without a sample. Of n samples all in the row, others of an expected ln(2/α) samples would show none with probability α/2:
//! the lower end is 1 − ln(2/α)/n of the total, as it is in an exact binomial interval of n hits in n.

use crate::estimate::{Reference, Row, RowMoments};

/// What the processes of `row` have beside it: every stratum, with samples or not.
pub(super) fn others(row: &Row, reference: &Reference) -> Row {
    let mut others = Row::default();
    for process in reference.processes_of(row) {
        for (stratum, totals) in reference.strata_of(process) {
            let own = row.get(stratum).copied().unwrap_or_default();
            let all = totals.sampled;
            let alloc_space = all.alloc_space.less(&own.alloc_space);
            let alloc_objects = all.alloc_objects.less(&own.alloc_objects);
            // Whose the rarest sample is is not known; where rates have changed the weighted interval is part of the calibrated one.
            let alloc_rarest = all.alloc_rarest;
            *others.stratum(stratum) =
                RowMoments { alloc_space, alloc_objects, alloc_rarest, ..RowMoments::default() };
        }
    }
    others
}
