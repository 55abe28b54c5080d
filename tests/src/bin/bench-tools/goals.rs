//! Goals of the default mode on every workload.

use crate::ratios::{added, microseconds_per_sample};
use crate::repetitions::Row;
use crate::tool::{Ours, Tool};
use sampler_tests::spread::Spread;

const OURS: Tool = Tool::Ours(Ours::Default);
/// Least ratio of memleak's added time to samplerd's.
const MEMLEAK: f64 = 6.0;
/// Largest ratio of samplerd's added time to that of empty programs, …
const EMPTY: f64 = 1.10;
/// … apart from this many microseconds for each sample.
const SAMPLE_US: f64 = 8.0;

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    /// memleak's added time divided by samplerd's.
    Memleak(Spread),
    /// samplerd's added time divided by that of empty programs, and the excess over the bound for
    /// each sample.
    Empty(Spread, Option<Spread>),
}

impl Goal {
    /// Whether the goal is reached.
    pub(crate) fn is_met(&self) -> bool {
        match self {
            Goal::Memleak(ratio) => ratio.median >= MEMLEAK,
            Goal::Empty(ratio, each) => {
                each.map_or(ratio.median <= EMPTY, |each| each.median <= SAMPLE_US)
            }
        }
    }

    /// Text for people.
    pub(crate) fn text(&self) -> String {
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        match self {
            Goal::Memleak(Spread { low, median, high, .. }) => format!(
                "added: memleak / samplerd ×{median:.1} [{low:.1} … {high:.1}]; goal ≥ {MEMLEAK}: {verdict}"
            ),
            Goal::Empty(Spread { low, median, high, .. }, each) => {
                let rest = each.map_or(String::new(), |Spread { low, median, high, .. }| {
                    format!(
                        "\n    beyond ×{EMPTY:.2}: {median:.1} [{low:.1} … {high:.1}] µs a sample"
                    )
                });
                format!(
                    "added: samplerd / empty ×{median:.2} [{low:.2} … {high:.2}]{rest}; \
                     goal ≤ {EMPTY:.2} + {SAMPLE_US} µs: {verdict}"
                )
            }
        }
    }
}

/// The goals of a workload for which there are figures.
pub(crate) fn of(row: &Row) -> Vec<Goal> {
    let memleak = added(row, Tool::Memleak, OURS).map(Goal::Memleak);
    let empty = added(row, OURS, Tool::Empty)
        .map(|ratio| Goal::Empty(ratio, microseconds_per_sample(row, OURS, Tool::Empty, EMPTY)));
    memleak.into_iter().chain(empty).collect()
}
