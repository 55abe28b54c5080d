//! Reads quantities: estimates with the moments that they were made from.

use crate::estimate::{Confidence, Estimate, Method, Moments};
use crate::profile::{Quantities, Quantity};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
pub(super) struct QuantitiesObject {
    pub(super) alloc_space: QuantityObject,
    pub(super) alloc_objects: QuantityObject,
    pub(super) inuse_space: QuantityObject,
    pub(super) inuse_objects: QuantityObject,
}

#[derive(Deserialize)]
pub(super) struct QuantityObject {
    pub(super) value: f64,
    pub(super) low: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) high: f64,
    #[serde(default = "weighted")]
    pub(super) method: Method,
    pub(super) moments: MomentsObject,
}

#[derive(Deserialize)]
pub(super) struct MomentsObject {
    pub(super) samples: u64,
    pub(super) sum: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) variance: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) largest: f64,
    pub(super) largest_inclusion: f64,
    pub(super) own: f64,
}

/// Reads a number. `null` stands for infinity, which json does not have.
pub(super) fn or_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// The method of files from versions that had only one method.
fn weighted() -> Method {
    Method::Weighted
}

pub(super) fn quantities(
    of: &QuantitiesObject,
    confidence: Confidence,
) -> Result<Quantities, String> {
    Ok(Quantities {
        alloc_objects: quantity(&of.alloc_objects, confidence)?,
        alloc_space: quantity(&of.alloc_space, confidence)?,
        inuse_objects: quantity(&of.inuse_objects, confidence)?,
        inuse_space: quantity(&of.inuse_space, confidence)?,
    })
}

pub(super) fn quantity(of: &QuantityObject, confidence: Confidence) -> Result<Quantity, String> {
    let QuantityObject { value, low, high, method, .. } = *of;
    // json has no NaN.
    if !(0.0 <= low && low <= value && value <= high && value.is_finite()) {
        return Err(format!("value {value} lies outside its interval {low} to {high}"));
    }
    let moments = moments(&of.moments)?;
    let samples = moments.samples;
    Ok(Quantity { estimate: Estimate { value, low, high, confidence, samples, method }, moments })
}

pub(super) fn moments(of: &MomentsObject) -> Result<Moments, String> {
    let MomentsObject { samples, sum, variance, largest, largest_inclusion, own } = *of;
    if !(0.0..=1.0).contains(&largest_inclusion) {
        return Err(format!("largest_inclusion {largest_inclusion} is no probability"));
    }
    for (name, number) in [("sum", sum), ("variance", variance), ("largest", largest), ("own", own)]
    {
        if number < 0.0 {
            return Err(format!("{name} {number} is negative"));
        }
    }
    Ok(Moments { samples, sum, variance, largest, largest_inclusion, own })
}
