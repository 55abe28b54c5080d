//! Width of the interval of all held bytes under `samplerd --max-overhead 1%`.
//!
//! A sample of a held block is drawn once, when the block is allocated. So the width depends on how
//! many of the samples that the budget allows belong to blocks that are still held.

use crate::layout::Layout;
use crate::pair;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::toolbox::{nobody_probes, ours};
use crate::workload::{self, Workload};
use anyhow::{Context, Result};
use sampler_common::units::{grouped, human_bytes};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Options of samplerd.
const OPTIONS: [&str; 2] = ["--max-overhead", "1%"];
/// Largest half of the interval's width, divided by the value.
const GOAL: f64 = 0.15;

/// Held bytes of a program.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    workload: Workload,
    value: f64,
    low: f64,
    /// Infinite: no upper end.
    high: f64,
    /// Samples of held blocks.
    held_samples: f64,
    /// All samples.
    samples: f64,
    /// Mean bytes between samples at the end.
    interval_bytes: f64,
}

impl Held {
    /// Half of the interval's width, divided by the value.
    fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value
    }

    fn verdict(&self) -> &'static str {
        if self.half_width() <= GOAL { "met" } else { "missed" }
    }

    /// Held bytes, width, samples of held blocks, all samples, interval.
    fn cells(&self) -> [String; 5] {
        let count = |of: f64| grouped(of.round() as u64);
        [
            human_bytes(self.value),
            format!("± {:.0} %", 100.0 * self.half_width()),
            count(self.held_samples),
            count(self.samples),
            human_bytes(self.interval_bytes),
        ]
    }
}

/// Runs every workload for this many seconds. A workload that fails is named and left out.
pub(crate) fn measure(workloads: &[Workload], seconds: f64, scratch: &Scratch) -> Vec<Held> {
    // A round of the compiler ends its process, which then holds nothing.
    let lasting: Vec<Workload> =
        workloads.iter().copied().filter(|of| *of != Workload::Compiler).collect();
    workload::each(&lasting, "held", |workload| run(workload, seconds, scratch))
}

fn run(workload: Workload, seconds: f64, scratch: &Scratch) -> Result<Held> {
    let templates = pair::templates(seconds);
    let mut program = Program::start(workload, templates, Layout::Random, &[], scratch)?;
    nobody_probes(program.pid())?;
    let attached = ours(program.pid(), &OPTIONS)?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        program.round()?;
    }
    let profile = attached.profile(&["--kind", "live"])?.context("samplerd is not attached")?;
    attached.detach()?;
    let held = &profile["totals"]["inuse_space"];
    let number = |of: &Value| of.as_f64().with_context(|| format!("held bytes are {held}"));
    Ok(Held {
        workload,
        value: number(&held["value"])?,
        low: number(&held["low"])?,
        high: held["high"].as_f64().unwrap_or(f64::INFINITY),
        held_samples: number(&held["moments"]["samples"])?,
        samples: number(&profile["samples"])?,
        interval_bytes: number(&profile["interval_bytes"])?,
    })
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Held]) -> String {
    let mut out = format!(
        "\n{}: held bytes between two rounds, half of the 95 % interval, samples of\n\
         held blocks, all samples, sampling interval; goal ± {:.0} %\n",
        OPTIONS.join(" "),
        100.0 * GOAL,
    );
    for of in all {
        let [value, width, held, samples, interval] = of.cells();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<15}{value:>12}{width:>9}{held:>9}{samples:>10}{interval:>12}  {}",
            of.workload.name(),
            of.verdict()
        );
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Held]) -> Value {
    let one = |of: &Held| {
        json!({
            "workload": of.workload.name(), "held_bytes": of.value, "low": of.low,
            "high": of.high.is_finite().then_some(of.high), "held_samples": of.held_samples,
            "samples": of.samples, "interval_bytes": of.interval_bytes,
        })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Held]) -> String {
    let mut out = "|  | held bytes | half of the 95 % interval | samples of held blocks | all samples | sampling interval | goal |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for of in all {
        let cells = of.cells().join(" | ");
        let _ = writeln!(out, "| {} | {cells} | {} |", of.workload.name(), of.verdict());
    }
    out
}
