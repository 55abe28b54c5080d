//! Numbers from the protocol, checked.

use crate::rpc::v1;
use sampler_common::estimate::{Confidence, Estimate, Method, Moments, Trials};
use sampler_common::profile::Quantity;

/// By how much an end of an interval may lie on the wrong side of its estimate, relative to the
/// estimate. This allows for rounding in another implementation, no more.
const TOLERANCE: f64 = 1e-9;

/// A number of a profile: finite and not negative.
pub(super) fn number(name: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("{name} {value} is not a finite number of 0 or more"))
    }
}

/// A number that may also be infinite.
pub(super) fn unbounded(name: &str, value: f64) -> Result<f64, String> {
    if value == f64::INFINITY { Ok(value) } else { number(name, value) }
}

/// Parses a number with its interval. The interval of a stride has no upper end. A stride may also
/// have missed a whole row. Such a row is weighted, has no sample and no exact totals, and its
/// interval has no upper end either.
pub(super) fn quantity(of: &v1::Quantity, confidence: Confidence) -> Result<Quantity, String> {
    let method = Method::from_name(&of.method).ok_or_else(|| {
        format!("method {:?} is unknown (is this sampler older than samplerd?)", of.method)
    })?;
    let value = number("value", of.value)?;
    let low = number("low", of.low)?;
    let high = match method {
        Method::Stride | Method::Weighted | Method::Clusters | Method::Exact => {
            unbounded("high", of.high)?
        }
        _ => number("high", of.high)?,
    };
    let slack = TOLERANCE * value.max(1.0);
    if low > value + slack || high < value - slack {
        return Err(format!("value {value} lies outside its interval {low} to {high}"));
    }
    let moments = moments(of.moments.as_ref().ok_or("it has no moments")?)?;
    if method != Method::Stride {
        number("variance", moments.variance)?;
    }
    let estimate = Estimate {
        value,
        low: low.min(value),
        high: high.max(value),
        confidence,
        samples: moments.samples,
        method,
    };
    Ok(Quantity { estimate, moments })
}

/// Moments. The variance may be infinite (a stride's).
pub(super) fn moments(of: &v1::Moments) -> Result<Moments, String> {
    if !(0.0..=1.0).contains(&of.largest_inclusion) {
        return Err(format!("largest_inclusion {} is no probability", of.largest_inclusion));
    }
    Ok(Moments {
        samples: of.samples,
        sum: number("sum", of.sum)?,
        variance: unbounded("variance", of.variance)?,
        largest: number("largest", of.largest)?,
        largest_inclusion: of.largest_inclusion,
        own: number("own", of.own)?,
    })
}

/// Sums of failed trials.
pub(super) fn trials(of: &v1::Trials) -> Result<Trials, String> {
    Ok(Trials {
        failures: number("failures", of.failures)?,
        variance: number("variance", of.variance)?,
        tail: number("tail", of.tail)?,
    })
}
