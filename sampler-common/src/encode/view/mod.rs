//! Data as json for a page that draws a profile: the call tree, the functions, the results of a
//! search.
//!
//! In names, characters that break lines or change the reading order are replaced
//! ([`super::name::shown`]). Escaping the rest is up to the page. An infinite number is `null`.
//! Every number is made from the summed rows of its stacks, never from bounds.

mod graph;
mod matches;
mod table;

pub use graph::graph;
pub use matches::matches;
pub use table::table;

use crate::estimate::Estimate;
use serde::Serialize;

/// A number with its interval.
#[derive(Serialize)]
struct Number {
    value: f64,
    low: f64,
    high: f64,
    samples: u64,
}

impl From<&Estimate> for Number {
    fn from(of: &Estimate) -> Number {
        Number { value: of.value, low: of.low, high: of.high, samples: of.samples }
    }
}

#[cfg(test)]
mod tests;
