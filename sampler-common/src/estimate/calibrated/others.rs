//! The complement of a row that has most of the samples: everything that is not in the row.
//!
//! Plainly: the row and the others sum to the exact total, so the row's lower end is what the
//! others' upper end leaves. If the row has a hundred samples and the others none, the row's own
//! variance says next to nothing. The open question is how much the others may have without a
//! sample. If all n samples are in the row, others with ln(2/α) expected samples would show none
//! with probability α/2. So the lower end is 1 − ln(2/α)/n of the total, as in an exact binomial
//! interval of n hits in n.

use crate::estimate::{Reference, Row, RowMoments};

/// The complement of `row` in its processes: every stratum, with or without samples.
pub(super) fn others(row: &Row, reference: &Reference) -> Row {
    let mut others = Row::default();
    for process in reference.processes_of(row) {
        for (stratum, totals) in reference.strata_of(process) {
            let own = row.get(stratum).copied().unwrap_or_default();
            let all = totals.sampled;
            let alloc_space = all.alloc_space.less(&own.alloc_space);
            let alloc_objects = all.alloc_objects.less(&own.alloc_objects);
            // The rarest sample may belong to the row or to the others. If rates have changed, the
            // weighted interval is part of the calibrated one.
            let alloc_max_unseen = all.alloc_max_unseen;
            *others.stratum(stratum) = RowMoments {
                alloc_space,
                alloc_objects,
                alloc_max_unseen,
                ..RowMoments::default()
            };
        }
    }
    others
}
