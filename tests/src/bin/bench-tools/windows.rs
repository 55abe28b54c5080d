//! `--windows 1%`: its cost, its intervals, and whether the intervals cover the truth.
//!
//! Two processes of a program take turns of some rounds, one alone and the other under samplerd.
//! Drift of the machine within minutes affects both alike. Both have the same layout of memory: the
//! effect to be measured is less than the usual difference of two processes of one program. The
//! true bytes are the number of rounds multiplied by the bytes of a round. A counting library
//! measures the bytes of a round in a third process.

use crate::attached::Windows;
use crate::exact::{Exact, since};
use crate::layout::Layout;
use crate::pair::{self, Pair, slowdown_text};
use crate::program::{Cost, Program};
use crate::scratch::Scratch;
use crate::turns;
use crate::workload::Workload;
use anyhow::{Context, Result};
use fastrand::Rng;
use sampler_tests::progress::Progress;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Options of samplerd: the share of CPU time.
pub(crate) const OPTIONS: [&str; 2] = ["--windows", "1%"];
/// Largest slowdown of a program.
const SLOWDOWN: f64 = 1.02;
/// CPU seconds of the rounds whose bytes are counted.
const COUNTED_S: f64 = 3.0;

/// A program that is profiled in windows.
#[derive(Clone, Debug)]
pub(crate) struct Windowed {
    /// The workload.
    pub(crate) workload: Workload,
    /// CPU time of a round divided by that of a round alone, with its standard error.
    /// The error is infinite if a program ends with its first round.
    pub(crate) slowdown: (f64, f64),
    /// CPU seconds of the program under samplerd.
    pub(crate) cpu_s: f64,
    /// CPU time of samplerd divided by `cpu_s`.
    pub(crate) own: f64,
    /// The windows.
    pub(crate) windows: Windows,
    /// Bytes that the program allocated since samplerd attached.
    pub(crate) truth: f64,
}

impl Windowed {
    /// Whether the goal is reached.
    pub(crate) fn is_met(&self) -> bool {
        self.slowdown.0 <= SLOWDOWN && self.is_covered()
    }

    /// Whether the interval holds the truth.
    pub(crate) fn is_covered(&self) -> bool {
        self.windows.low <= self.truth && self.truth <= self.windows.high
    }
}

/// Runs every workload for this many seconds of CPU time under samplerd, once. A workload that
/// fails is printed and left out.
pub(crate) fn measure(
    workloads: &[Workload],
    seconds: f64,
    seed: u64,
    scratch: &Scratch,
) -> Vec<Windowed> {
    let mut order = workloads.to_vec();
    let mut random = Rng::with_seed(seed);
    random.shuffle(&mut order);
    let progress = Progress::of("windows", order.len());
    let mut all = Vec::new();
    for workload in order {
        match run(workload, seconds, &mut random, scratch) {
            Ok(of) => {
                progress.say(line(&of));
                all.push(of);
            }
            Err(error) => progress.say(format_args!("{}: {error:#}", workload.name())),
        }
        progress.done();
    }
    all.sort_by_key(|of| workloads.iter().position(|workload| *workload == of.workload));
    all
}

fn run(workload: Workload, seconds: f64, random: &mut Rng, scratch: &Scratch) -> Result<Windowed> {
    let bytes = bytes_of_a_round(workload, pair::templates(seconds), scratch)?;
    let mut pair = Pair::start(workload, seconds, Layout::Fixed, &[], Some(&OPTIONS), scratch)?;
    let warm_up = pair.warm_up(seconds)?;
    let turned = pair.run(seconds, random)?;
    let windows = pair.attached.windows(0.95)?.context("samplerd had no window")?;
    pair.attached.detach()?;
    Ok(Windowed {
        workload,
        slowdown: turned.slowdown(),
        cpu_s: turned.cpu_s(),
        own: turned.own(),
        windows,
        truth: bytes * f64::from(warm_up + turned.rounds()),
    })
}

/// Bytes that a round allocates, counted by a preloaded library.
///
/// # Errors
/// If the program or the library fails.
pub(crate) fn bytes_of_a_round(
    workload: Workload,
    templates: u32,
    scratch: &Scratch,
) -> Result<f64> {
    let exact = Exact::prepare(scratch)?;
    let mut program =
        Program::start(workload, templates, Layout::Fixed, &exact.environment(), scratch)?;
    let before = exact.bytes()?;
    let Cost { rounds, .. } = turns::block(&mut program, COUNTED_S)?;
    let bytes: u64 = since(&before, &exact.bytes()?).values().sum();
    Ok(bytes as f64 / f64::from(rounds))
}

/// The cells of a program: slowdown, CPU time of samplerd, windows, samples, width, error.
fn cells(of: &Windowed) -> [String; 6] {
    let Windowed { slowdown, own, windows, truth, .. } = of;
    let [below, above] = [windows.low, windows.high].map(|end| 100.0 * (end / windows.value - 1.0));
    let width = match (windows.count >= 8.0, above.is_finite()) {
        (false, _) => "none".to_owned(),
        (true, true) => format!("{below:.0} … {above:+.0} %"),
        (true, false) => format!("{below:.0} % … open"),
    };
    let off = 100.0 * (windows.value / truth - 1.0);
    [
        slowdown_text(*slowdown),
        format!("{:.1} %", 100.0 * own),
        format!("{:.0}", windows.count),
        format!("{:.0}", windows.effective),
        width,
        format!("{off:+.0} %{}", if of.is_covered() { "" } else { ", outside" }),
    ]
}

/// One program, in a line.
fn line(of: &Windowed) -> String {
    let [slowdown, own, windows, samples, width, off] = cells(of);
    let verdict = if of.is_met() { "met" } else { "missed" };
    format!(
        "{:<15}{slowdown:<15}{own:>6}{windows:>6}{samples:>7}{width:>18}{off:>15}  {verdict}",
        of.workload.name()
    )
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Windowed]) -> String {
    let mut out = format!(
        "\n{}: CPU time by that alone (95 %), samplerd's own, windows, as many\n\
         samples, interval of all bytes, off the truth; goal ≤ {SLOWDOWN}, covered\n",
        OPTIONS.join(" "),
    );
    for of in all {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", line(of));
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Windowed]) -> Value {
    let one = |of: &Windowed| {
        let Windows { count, value, low, high, effective } = of.windows;
        json!({
            "workload": of.workload.name(), "slowdown": of.slowdown.0,
            "slowdown_error": of.slowdown.1, "cpu_s": of.cpu_s, "own_cpu": of.own,
            "windows": count, "effective_samples": effective, "bytes": value, "low": low,
            "high": high, "truth": of.truth,
            "covered": of.is_covered(), "met": of.is_met(),
        })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Windowed]) -> String {
    let mut out = "|  | slowdown, 95 % | samplerd's own CPU time | windows | effective samples, (Σw)²/Σw² | interval of all bytes | off the truth | goal |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for of in all {
        let verdict = if of.is_met() { "met" } else { "missed" };
        let cells = cells(of).join(" | ");
        let _ = writeln!(out, "| {} | {cells} | {verdict} |", of.workload.name());
    }
    out
}
