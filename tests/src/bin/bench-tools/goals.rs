//! What the default mode has to reach on every workload.

use crate::attached::Windows;
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

/// Most that a budget of 1 % may slow a program down by.
const BUDGET: f64 = 1.015;
/// Most that the library inside a program may slow it down by, while a daemon listens and follows frees.
const PRELOAD: f64 = 1.02;
/// Most of half the interval of the bytes allocated, by their estimate.
const HALF_WIDTH: f64 = 0.30;

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Added time of memleak by ours.
    Memleak(Spread),
    /// Our added time by that of empty programs, and what is beyond the bound for each sample.
    Empty(Spread, Option<Spread>),
    /// Slowdown under a budget of 1 %; windows, half-widths of the interval, samples that would tell as much.
    Budget(Spread, [Spread; 3]),
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
            Goal::Budget(slowdown, [_, half_width, _]) => {
                slowdown.median <= BUDGET && half_width.median <= HALF_WIDTH
            }
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
            Goal::Budget(Spread { low, median, high, .. }, [windows, half_width, effective]) => {
                let width = match half_width.median.is_finite() {
                    true => format!("±{:.0} %", 100.0 * half_width.median),
                    false => "no interval".to_owned(),
                };
                format!(
                    "--max-overhead 1%: ×{median:.3} [{low:.3} … {high:.3}], {:.0} windows, {width} \
                     (as {:.0} samples); goal ≤ {BUDGET}, ±{:.0} %: {met}",
                    windows.median,
                    effective.median,
                    100.0 * HALF_WIDTH
                )
            }
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
    memleak.into_iter().chain(empty).chain(budget(row)).chain(preload(row)).collect()
}

/// What the preloaded library costs; pairs of malloc and free, which are nothing else, have their goal in `bench preload`.
fn preload(row: &Row) -> Option<Goal> {
    let is_real = !matches!(row.workload, Workload::Pairs | Workload::PairsTwo);
    let figures = is_real.then(|| figures(row, Tool::Ours(Ours::Preload))).flatten()?;
    Some(Goal::Preload(figures.slowdown()))
}

/// What a budget of 1 % gives.
fn budget(row: &Row) -> Option<Goal> {
    const TOOL: Tool = Tool::Ours(Ours::Budget);
    let slowdown = figures(row, TOOL)?.slowdown();
    let windows: Vec<Windows> =
        row.runs(TOOL).iter().filter_map(|run| run.as_ref()?.samples.windows).collect();
    let spread = |of: fn(&Windows) -> f64| Spread::of(windows.iter().map(of));
    (!windows.is_empty()).then(|| {
        let told = [spread(|of| of.met), spread(|of| of.half_width), spread(|of| of.effective)];
        Goal::Budget(slowdown, told)
    })
}
