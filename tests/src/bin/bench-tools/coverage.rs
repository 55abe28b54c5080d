//! Whether the intervals of `--windows 1%` contain the truth, in many runs of each program.
//!
//! Only one process runs at a time, and its slowdown is not measured. So other work on the machine
//! does no harm: it makes the runs longer.

use crate::layout::Layout;
use crate::pair;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::toolbox::{nobody_probes, ours};
use crate::turns;
use crate::windows::{OPTIONS, bytes_of_a_round};
use crate::workload::{self, Workload};
use anyhow::{Context, Result};
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Confidence of the intervals.
const CONFIDENCE: f64 = 0.99;

/// The intervals of a program's runs.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    workload: Workload,
    runs: Vec<Run>,
}

/// The interval of a run, as a share of the truth.
#[derive(Clone, Copy, Debug)]
struct Run {
    windows: f64,
    value: f64,
    low: f64,
    /// Infinite: no upper end.
    high: f64,
}

impl Run {
    fn is_covered(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }

    /// Whether the interval excludes anything.
    fn is_interval(&self) -> bool {
        self.low > 0.0 || self.high.is_finite()
    }
}

impl Coverage {
    fn count(&self, of: impl Fn(&Run) -> bool) -> usize {
        self.runs.iter().filter(|run| of(run)).count()
    }

    /// Intervals that contain the truth, intervals with an upper end, and the medians of windows,
    /// value and lower end. A run with too few windows has no interval.
    fn cells(&self) -> [String; 5] {
        let median = |of: fn(&Run) -> f64| Spread::of(self.runs.iter().map(of)).median;
        let off = |of: fn(&Run) -> f64| format!("{:+.0} %", 100.0 * (median(of) - 1.0));
        [
            format!(
                "{} of {}",
                self.count(|run| run.is_interval() && run.is_covered()),
                self.count(Run::is_interval)
            ),
            self.count(|run| run.high.is_finite()).to_string(),
            median(|run| run.windows).to_string(),
            off(|run| run.value),
            off(|run| run.low),
        ]
    }
}

/// Runs every workload this often, for this many seconds of CPU time each. A workload that fails is
/// named and left out.
pub(crate) fn measure(
    workloads: &[Workload],
    runs: u32,
    seconds: f64,
    scratch: &Scratch,
) -> Vec<Coverage> {
    workload::each(workloads, "coverage", |workload| {
        let bytes = bytes_of_a_round(workload, pair::templates(seconds), scratch)?;
        let runs = (0..runs).map(|_| run(workload, bytes, seconds, scratch));
        Ok(Coverage { workload, runs: runs.collect::<Result<_>>()? })
    })
}

fn run(workload: Workload, round_bytes: f64, seconds: f64, scratch: &Scratch) -> Result<Run> {
    let templates = pair::templates(seconds);
    let mut program = Program::start(workload, templates, Layout::Random, &[], scratch)?;
    nobody_probes(program.pid())?;
    let attached = ours(program.pid(), &OPTIONS)?;
    let rounds = turns::block(&mut program, seconds)?.rounds;
    let windows = attached.windows(CONFIDENCE)?.context("samplerd had no window")?;
    attached.detach()?;
    let of_truth = |bytes: f64| bytes / (round_bytes * f64::from(rounds));
    Ok(Run {
        windows: windows.count,
        value: of_truth(windows.value),
        low: of_truth(windows.low),
        high: of_truth(windows.high),
    })
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Coverage]) -> String {
    let mut out = format!(
        "\n{}: {:.0} % intervals that contain the truth, with an upper end; medians of\n\
         all runs: windows, value and lower end off the truth\n",
        OPTIONS.join(" "),
        100.0 * CONFIDENCE,
    );
    for of in all {
        let [covered, closed, windows, value, low] = of.cells();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<15}{covered:>10}{closed:>6}{windows:>7}{value:>9}{low:>9}",
            of.workload.name()
        );
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Coverage]) -> Value {
    let run = |of: &Run| {
        json!({
            "windows": of.windows, "value": of.value, "low": of.low,
            "high": of.high.is_finite().then_some(of.high), "covered": of.is_covered(),
        })
    };
    let one = |of: &Coverage| {
        let runs: Vec<Value> = of.runs.iter().map(run).collect();
        json!({ "workload": of.workload.name(), "runs": runs })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Coverage]) -> String {
    let mut out = "|  | intervals that contain the truth | with an upper end | windows | value off the truth | lower end |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for of in all {
        let _ = writeln!(out, "| {} | {} |", of.workload.name(), of.cells().join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_their_intervals() {
        let run = |low, high| Run { windows: 9.0, value: 0.8, low, high };
        let runs =
            vec![run(0.5, 1.2), run(0.7, f64::INFINITY), run(0.0, f64::INFINITY), run(0.5, 0.9)];
        let of = Coverage { workload: Workload::Perl, runs };
        assert_eq!(
            of.cells().map(|cell| cell.trim().to_owned()),
            ["2 of 3", "2", "9", "-20 %", "-50 %"]
        );
        assert!(json(&[of])[0]["runs"][1]["high"].is_null());
    }
}
