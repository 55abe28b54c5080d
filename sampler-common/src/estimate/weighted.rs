//! The weighted estimator.

use super::{Confidence, Estimate, Moments};

/// The weighted (Horvitz–Thompson) estimate of a total with its gamma interval.
///
/// `interval_bytes` is the mean number of bytes between samples (the largest that was in force): with
/// no sample at all the estimate is 0 and the upper end R·ln(2/α), since as many unseen bytes (or
/// one-byte objects) leave no sample with probability α/2.
pub fn weighted(moments: &Moments, interval_bytes: f64, confidence: Confidence) -> Estimate {
    let _ = (moments, interval_bytes, confidence);
    todo!()
}
