//! Failed trials if the rate has changed: the next hit may have a rate of which there is no sample.
//!
//! The law of the parent module has one more hit of the effective interval R. If the allocations at
//! longer intervals are known ([`mod@crate::estimate::epoch`]), that hit is K(E) instead. K is the
//! fractional knapsack of all epochs (the module `unseen_capacity`), before one more hit of R:
//!
//! ```text
//! high = u + gamma quantile of 1 − α/2 for mean Σ(R − 1) + E[K], variance ΣR(R − 1) + Var(K)
//! ```
//!
//! and never below the end for a constant rate. Without a failed trial it is K(ln(2/α)).

use super::NegativeBinomial;
use crate::estimate::gamma::{Tail, quantile};
use crate::estimate::unseen_capacity::UnseenCapacity;
use crate::estimate::{Estimate, Trials};

/// `estimate` of these trials, with room for allocations at other rates.
pub(in crate::estimate) fn widened(
    estimate: Estimate,
    trials: &Trials,
    capacity: &UnseenCapacity,
) -> Estimate {
    let tail = estimate.confidence.alpha() / 2.0;
    let Some(NegativeBinomial { interval, .. }) = NegativeBinomial::matching(trials) else {
        let high = trials.tail + capacity.at(estimate.confidence.budget());
        return Estimate { high: high.min(estimate.high).max(estimate.value), ..estimate };
    };
    let event = capacity.next_event(interval - 1.0, 1.0 / interval);
    let (mean, variance) = (trials.failures + event.mean, trials.variance + event.variance);
    let high = if mean.is_finite() && variance.is_finite() {
        quantile(mean, variance, tail, Tail::Upper) + trials.tail
    } else {
        f64::INFINITY
    };
    Estimate { high: high.max(estimate.high), ..estimate }
}
