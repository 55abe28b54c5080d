//! What the default mode has to reach on every workload.

use crate::ratios::{added, figures, microseconds_per_sample};
use crate::repetitions::Row;
use crate::tool::{Ours, Tool};
use crate::workload::Workload;
use sampler_tests::spread::Spread;

const OURS: Tool = Tool::Ours(Ours::Default);
/// Times our added time that memleak's is at least.
const MEMLEAK: f64 = 6.0;
/// Most of our added time by that of empty programs …
const EMPTY: f64 = 1.10;
/// … but for so many microseconds for each sample.
const SAMPLE_US: f64 = 8.0;

/// Most that the library inside a program may slow it down by, while a daemon listens and follows frees.
const PRELOAD: f64 = 1.02;

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Added time of memleak by ours.
    Memleak(Spread),
    /// Our added time by that of empty programs, and what is beyond the bound for each sample.
    Empty(Spread, Option<Spread>),
    /// Slowdown by the preloaded library.
    Preload(Spread),
}

impl Goal {
    /// Whether it is reached.
    pub(crate) fn is_met(&self) -> bool {
        match self {
            Goal::Memleak(ratio) => ratio.median >= MEMLEAK,
            Goal::Empty(ratio, each) => {
                each.map_or(ratio.median <= EMPTY, |each| each.median <= SAMPLE_US)
            }
            Goal::Preload(slowdown) => slowdown.median <= PRELOAD,
        }
    }

    /// As people read it.
    pub(crate) fn text(&self) -> String {
        let met = if self.is_met() { "met" } else { "MISSED" };
        match self {
            Goal::Memleak(Spread { low, median, high, .. }) => format!(
                "added: memleak / samplerd ×{median:.1} [{low:.1} … {high:.1}]; goal ≥ {MEMLEAK}: {met}"
            ),
            Goal::Preload(Spread { low, median, high, .. }) => format!(
                "preloaded library: ×{median:.3} [{low:.3} … {high:.3}]; goal ≤ {PRELOAD}: {met}"
            ),
            Goal::Empty(Spread { low, median, high, .. }, each) => {
                let rest = each.map_or(String::new(), |Spread { low, median, high, .. }| {
                    format!(
                        "\n    beyond ×{EMPTY:.2}: {median:.1} [{low:.1} … {high:.1}] µs a sample"
                    )
                });
                format!(
                    "added: samplerd / empty ×{median:.2} [{low:.2} … {high:.2}]{rest}; \
                     goal ≤ {EMPTY:.2} + {SAMPLE_US} µs: {met}"
                )
            }
        }
    }
}

/// The goals of a workload, those for which there are figures.
pub(crate) fn of(row: &Row) -> Vec<Goal> {
    let memleak = added(row, Tool::Memleak, OURS).map(Goal::Memleak);
    let empty = added(row, OURS, Tool::Empty)
        .map(|ratio| Goal::Empty(ratio, microseconds_per_sample(row, OURS, Tool::Empty, EMPTY)));
    memleak.into_iter().chain(empty).chain(preload(row)).collect()
}

/// What the preloaded library costs; pairs of malloc and free, which are nothing else, have their goal in `bench preload`.
fn preload(row: &Row) -> Option<Goal> {
    let is_real = !matches!(row.workload, Workload::Pairs | Workload::PairsTwo);
    let figures = is_real.then(|| figures(row, Tool::Ours(Ours::Preload))).flatten()?;
    Some(Goal::Preload(figures.slowdown()))
}
