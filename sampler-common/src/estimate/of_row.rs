//! The four estimates of a row: the only place where summed moments become intervals.
//!
//! Plainly: a row's samples say what was seen. What was not seen may be in any size class that its
//! processes use. So every class without a sample in the row has room for what its rate lets pass
//! (the module `unseen_capacity`). The capacity is at most what is left of the class's exact total.
//! The same holds for every rate without a sample, if rates have changed ([`mod@super::epoch`]).
//! For example, one sample of a large block gives good bytes but hardly any information on objects:
//! a million small blocks may have gone unseen.
//!
//! The failed-trials estimator estimates bytes only: its objects are weighted. The calibrated
//! estimator needs exact totals, which exist only for allocations: held memory is weighted.

use super::Moments;
use super::calibrated;
use super::failed_trials::widened;
use super::quantity::Quantity;
use super::weighted::with_capacity;
use super::{
    Confidence, Edges, Estimate, Estimator, Method, Reference, Row, RowMoments, Trials, of_trials,
};

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
/// A row without any stratum counts as a row of all processes. The pair of estimator and strategy
/// must exist ([`Estimator::check`]).
pub fn of_row(
    row: &Row,
    reference: &Reference,
    estimator: Estimator,
    confidence: Confidence,
) -> RowEstimates {
    let total = row.total();
    let make = |quantity: Quantity| {
        let capacity = reference.capacity(row, quantity, confidence);
        let seen = with_capacity(quantity.of(&total), &capacity, confidence);
        reference.clustered(row, quantity, seen, confidence)
    };
    let mut estimates = RowEstimates {
        alloc_objects: make(Quantity::AllocObjects),
        alloc_space: make(Quantity::AllocSpace),
        inuse_objects: make(Quantity::InuseObjects),
        inuse_space: make(Quantity::InuseSpace),
    };
    match estimator {
        Estimator::Weighted => {}
        Estimator::Calibrated => {
            let make = |quantity| calibrated::calibrated(row, reference, quantity, confidence);
            estimates.alloc_space = make(Quantity::AllocSpace);
            estimates.alloc_objects = make(Quantity::AllocObjects);
        }
        Estimator::FailedTrials => {
            failed_trials(&mut estimates, &total, reference);
            if reference.has_changed(row) {
                widen(&mut estimates, row, reference);
            }
        }
        Estimator::Exact => {
            estimates = counted(&estimates, &total, reference.allocations_unseen);
        }
    }
    if reference.held_unknown {
        // No method of estimation gives this interval.
        let method = Method::Weighted;
        let unknown = |of: Estimate| Estimate { low: 0.0, high: f64::INFINITY, method, ..of };
        estimates.inuse_space = unknown(estimates.inuse_space);
        estimates.inuse_objects = unknown(estimates.inuse_objects);
    }
    estimates
}

/// Estimates of what was counted.
///
/// Numbers that may belong elsewhere are in the sum, but not in what certainly exists. If calls
/// went `unseen`, there may be more, and frees of held blocks may be among them.
fn counted(of: &RowEstimates, total: &RowMoments, unseen: bool) -> RowEstimates {
    let counted = |of: Estimate, moments: &Moments, is_certain: bool| Estimate {
        low: if is_certain { moments.own.min(of.value) } else { 0.0 },
        high: if unseen { f64::INFINITY } else { of.value },
        method: Method::Exact,
        ..of
    };
    RowEstimates {
        alloc_objects: counted(of.alloc_objects, &total.alloc_objects, true),
        alloc_space: counted(of.alloc_space, &total.alloc_space, true),
        inuse_objects: counted(of.inuse_objects, &total.inuse_objects, !unseen),
        inuse_space: counted(of.inuse_space, &total.inuse_space, !unseen),
    }
}

/// Replaces the weighted bytes by failed trials.
fn failed_trials(estimates: &mut RowEstimates, total: &RowMoments, reference: &Reference) {
    let put = |space: &mut Estimate, trials: &Trials| {
        let (samples, interval) = (space.samples, reference.interval_bytes);
        *space = of_trials(trials, samples, interval, Edges::Window, space.confidence);
    };
    put(&mut estimates.alloc_space, &total.alloc_trials);
    put(&mut estimates.inuse_space, &total.inuse_trials);
}

/// Adds room for failed trials at rates that have changed.
fn widen(estimates: &mut RowEstimates, row: &Row, reference: &Reference) {
    let (total, blank) = (row.total(), row.blank());
    let put = |space: &mut Estimate, trials: &Trials, quantity: Quantity| {
        let capacity = reference.capacity(&blank, quantity, space.confidence);
        *space = widened(*space, trials, &capacity);
    };
    put(&mut estimates.alloc_space, &total.alloc_trials, Quantity::AllocSpace);
    put(&mut estimates.inuse_space, &total.inuse_trials, Quantity::InuseSpace);
}

/// Everything in a profile, with what belongs to no stack: the row whose estimate is the total.
pub fn everything(reference: &Reference, estimator: Estimator) -> Row {
    reference.row().complete(&unsampled(reference, estimator))
}

/// The part that belongs to no stack: strata with allocations but without any sample that could
/// stand for them, as a row without samples.
///
/// The calibrated estimator estimates this row by its exact totals, so that all rows sum to the
/// exact totals. Under the other estimators the row is empty.
pub fn unsampled(reference: &Reference, estimator: Estimator) -> Row {
    match estimator {
        Estimator::Calibrated => calibrated::unsampled(reference),
        Estimator::Weighted | Estimator::FailedTrials | Estimator::Exact => Row::default(),
    }
}
