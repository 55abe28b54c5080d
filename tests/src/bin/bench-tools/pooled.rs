//! Accuracy over all repetitions: as text, and as JSON.

use crate::accuracy::{Accuracy, INTERVALS, MIN_SHARE, Place, TOP};
use crate::workload::Workload;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The runs of a workload, by interval.
pub(crate) struct Summary {
    /// The program.
    pub(crate) workload: Workload,
    /// Results in the order of [`INTERVALS`].
    pub(crate) by_interval: [Pooled; INTERVALS.len()],
}

/// Runs of one workload with one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pooled {
    /// Absolute errors of the top places, of all runs.
    pub(crate) errors: Vec<f64>,
    /// Places whose interval held the exact bytes.
    pub(crate) covered: usize,
    /// Samples of each run.
    pub(crate) samples: Vec<f64>,
    /// Absolute errors of all bytes.
    pub(crate) totals: Vec<f64>,
}

/// The measurements, pooled by workload.
pub(crate) fn summaries(all: &[Accuracy]) -> Vec<Summary> {
    let pooled = |workload: Workload, bytes: u64| {
        let mut pooled = Pooled::default();
        let of = |run: &&Accuracy| run.workload == workload && run.interval_bytes == bytes;
        for run in all.iter().filter(of) {
            pooled.errors.extend(run.places.iter().map(|place| place.error().abs()));
            pooled.covered += run.places.iter().filter(|place| place.is_covered()).count();
            pooled.samples.push(run.samples as f64);
            pooled.totals.push(run.total_error.abs());
        }
        pooled
    };
    let has = |workload: &Workload| all.iter().any(|run| run.workload == *workload);
    let summary = |workload| Summary {
        workload,
        by_interval: INTERVALS.map(|(_, bytes)| pooled(workload, bytes)),
    };
    Workload::ALL.into_iter().filter(has).map(summary).collect()
}

impl Pooled {
    /// Median and largest error, how many places were covered, and the number of samples.
    pub(crate) fn text(&self) -> String {
        if self.errors.is_empty() {
            return "not run".to_owned();
        }
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        let (errors, samples) = (spread(&self.errors), spread(&self.samples).median);
        format!(
            "{:.1} % (≤ {:.0} %), {}/{} of {samples:.0}",
            100.0 * errors.median,
            100.0 * errors.max,
            self.covered,
            self.errors.len()
        )
    }
}

/// As JSON: a list of runs.
pub(crate) fn json(all: &[Accuracy]) -> Value {
    let place = |of: &Place| {
        json!({
            "name": of.name, "exact": of.exact,
            "estimate": of.estimate, "low": of.low, "high": of.high,
        })
    };
    let run = |run: &Accuracy| {
        json!({
            "workload": run.workload.name(), "interval_bytes": run.interval_bytes,
            "samples": run.samples, "places": run.places.iter().map(place).collect::<Vec<_>>(),
            "total_error": run.total_error, "count_error": run.count_error,
        })
    };
    all.iter().map(run).collect()
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Accuracy]) -> String {
    let mut out = format!(
        "\nerror of the callers of malloc that ask for most (at least {:.0} % of all bytes,\n\
         at most {TOP}), against a counting library: median (largest), intervals\n\
         (95 %) that hold the exact bytes, of n samples\n",
        100.0 * MIN_SHARE
    );
    for summary in summaries(all) {
        for ((interval, _), pooled) in INTERVALS.iter().zip(&summary.by_interval) {
            // Writing to a String cannot fail.
            let _ =
                writeln!(out, "  {:<16}{interval:>8}  {}", summary.workload.name(), pooled.text());
        }
    }
    let counted = Spread::of(all.iter().map(|run| run.count_error.abs()));
    let _ = writeln!(
        out,
        "  samplerd's exact totals differ from the library's by {:.4} % (at most {:.4} %)",
        100.0 * counted.median,
        100.0 * counted.max
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_all_runs_are_pooled() {
        let place = |estimate: f64| Place {
            name: "f".to_owned(),
            exact: 100.0,
            estimate,
            low: estimate - 15.0,
            high: estimate + 15.0,
        };
        let run = |interval_bytes, estimates: &[f64]| Accuracy {
            workload: Workload::Jq,
            interval_bytes,
            samples: 40,
            places: estimates.iter().map(|estimate| place(*estimate)).collect(),
            total_error: -0.5,
            count_error: 0.0,
        };
        let all = [run(64 << 10, &[90.0, 130.0]), run(64 << 10, &[101.0]), run(4 << 20, &[100.0])];
        let summaries = summaries(&all);
        assert_eq!(summaries.len(), 1);
        let [fine, default, _] = &summaries[0].by_interval;
        assert_eq!((fine.covered, fine.errors.len(), fine.totals.len()), (2, 3, 2));
        assert_eq!(fine.text(), "10.0 % (≤ 30 %), 2/3 of 40");
        assert_eq!(default.text(), "not run");
    }
}
