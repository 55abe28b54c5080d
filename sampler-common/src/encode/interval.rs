//! An estimate with its interval as a short text, for formats that have no other room for
//! intervals.

use crate::estimate::{Estimate, plus_minus};
use crate::units::{human_bytes, human_count};

/// `607 MiB ±6% (572 MiB … 642 MiB)`.
pub(super) fn bytes(estimate: &Estimate) -> String {
    written(estimate, human_bytes)
}

/// `155k ±6% (147k … 164k)`.
pub(super) fn objects(estimate: &Estimate) -> String {
    written(estimate, human_count)
}

/// `1.21 GiB·s ±6% (1.14 GiB·s … 1.28 GiB·s)`.
pub(super) fn byte_seconds(estimate: &Estimate) -> String {
    written(estimate, |value| format!("{}·s", human_bytes(value)))
}

fn written(estimate: &Estimate, human: impl Fn(f64) -> String) -> String {
    let (value, low) = (human(estimate.value), human(estimate.low));
    if !estimate.has_interval() {
        return format!("{value} (no interval, at least {low})");
    }
    let range = format!("({low} … {})", human(estimate.high));
    match plus_minus(estimate).as_str() {
        "" => format!("{value} {range}"),
        around => format!("{value} {around} {range}"),
    }
}
