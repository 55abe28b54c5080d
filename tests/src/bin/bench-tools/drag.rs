//! What traps add to a program's own code, for each allocation: `sampler_common::duty::Drag` says what is usual, and this is how that is found.
//!
//! A process does its rounds without probes, with probes where it allocates, and with those where it frees as well, by turns; where a round ends it, a new process each. Its own time is counted by
//! ticks; between rounds it has none. Samples would add to it: there are none. Beside it stands what samplerd finds that traps add to its own typical code, as the
//! machine is just then: m by that is what `sampler_common::duty::Usual` says.

use crate::attached::Attached;
use crate::exact::Exact;
use crate::layout::Layout;
use crate::pair;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::toolbox::{nobody_probes, ours};
use crate::turns;
use crate::user::{Counting, spots_of};
use crate::workload::Workload;
use anyhow::{Context as _, Result};
use sampler_tests::progress::Progress;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How it is probed.
const PROBED: [Option<&[&str]>; 3] =
    [None, Some(&["--interval", "4GiB", "--no-live"]), Some(&["--interval", "4GiB"])];
/// Turns of each; every way comes first in a third of them, so that what drifts is in none.
const TURNS: usize = 6;
/// CPU seconds of the rounds whose allocations are counted.
const COUNTED_S: f64 = 2.0;

/// A program, and what traps add to it.
#[derive(Clone, Debug)]
pub(crate) struct Dragged {
    workload: Workload,
    /// Its own time for each allocation, nanoseconds, probed as [`PROBED`] says, turn by turn.
    each_ns: Vec<[f64; 3]>,
    /// What a trap adds to samplerd's typical code, nanoseconds, turn by turn.
    typical_ns: Vec<f64>,
}

impl Dragged {
    fn spread(&self, of: impl Fn(&[f64; 3]) -> f64) -> Spread {
        Spread::of(self.each_ns.iter().map(of))
    }

    /// g, m, f·d, f being the frees for each allocation, and what typical code loses.
    fn spreads(&self) -> [Spread; 4] {
        [
            self.spread(|turn| turn[0]),
            self.spread(|turn| turn[1] - turn[0]),
            self.spread(|turn| turn[2] - turn[1]),
            Spread::of(self.typical_ns.iter().copied()),
        ]
    }

    fn cells(&self) -> [String; 4] {
        self.spreads()
            .map(|Spread { low, median, high, .. }| format!("{median:.1} [{low:.1}–{high:.1}]"))
    }
}

/// Of every workload, so many seconds of CPU time for each turn. What fails is told and left out.
pub(crate) fn measure(workloads: &[Workload], seconds: f64, scratch: &Scratch) -> Vec<Dragged> {
    let progress = Progress::of("drag", workloads.len());
    let mut all = Vec::new();
    for workload in workloads {
        match run(*workload, seconds, scratch) {
            Ok(of) => all.push(of),
            Err(error) => progress.say(format_args!("{}: {error:#}", workload.name())),
        }
        progress.done();
    }
    all
}

fn run(workload: Workload, seconds: f64, scratch: &Scratch) -> Result<Dragged> {
    let templates = pair::templates(seconds);
    let allocations = allocations_of_a_round(workload, templates, scratch)?;
    let start = || Program::start(workload, templates, Layout::Random, &[], scratch);
    let mut program = start()?;
    let (mut each_ns, mut typical_ns) = (Vec::new(), Vec::new());
    for at in 0..TURNS {
        typical_ns.push(typical_loses(program.pid())?);
        let mut turn = [0.0; 3];
        for way in (0..PROBED.len()).map(|way| (at + way) % PROBED.len()) {
            let options = PROBED[way];
            nobody_probes(program.pid())?;
            let spots = spots_of(program.pid())?;
            let attached = match options {
                Some(options) => ours(program.pid(), options)?,
                None => Attached::Nothing,
            };
            if !program.is_once() {
                program.round()?;
            }
            let counting = Counting::start(program.pid(), &spots, scratch)?;
            let rounds = turns::block(&mut program, seconds)?.rounds;
            turn[way] = counting.end()? / (allocations * f64::from(rounds));
            attached.detach()?;
            if program.is_over() {
                program = start()?;
            }
        }
        each_ns.push(turn);
    }
    Ok(Dragged { workload, each_ns, typical_ns })
}

/// What a trap adds to samplerd's own typical code, nanoseconds: it looks at its start, if somebody has a budget.
fn typical_loses(idle_pid: u32) -> Result<f64> {
    let attached = ours(idle_pid, &["--max-overhead", "1%"])?;
    let typical_ns = attached.typical_ns()?;
    attached.detach()?;
    typical_ns.context("samplerd has not found what traps add to its own code")
}

/// Counted by a preloaded library.
fn allocations_of_a_round(workload: Workload, templates: u32, scratch: &Scratch) -> Result<f64> {
    let exact = Exact::prepare(scratch)?;
    let environment = exact.environment();
    let mut program = Program::start(workload, templates, Layout::Random, &environment, scratch)?;
    let before = exact.allocations()?;
    let rounds = turns::block(&mut program, COUNTED_S)?.rounds;
    Ok((exact.allocations()? - before) as f64 / f64::from(rounds))
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Dragged]) -> String {
    let mut out =
        "\nown time for each allocation, ns [quartiles]; what a trap in it adds; in its free; and\n\
         what a trap adds to samplerd's typical code\n"
            .to_owned();
    for of in all {
        let [alone, adds, frees, typical] = of.cells();
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "{:<15}{alone:<22}{adds:<20}{frees:<20}{typical}", of.workload.name());
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Dragged]) -> Value {
    let one = |of: &Dragged| {
        let [alone, adds, frees, typical] = of.spreads().map(|spread| spread.json());
        json!({
            "workload": of.workload.name(), "own_ns": alone, "m_ns": adds, "fd_ns": frees,
            "typical_ns": typical,
        })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Dragged]) -> String {
    let mut out =
        "|  | own time for each allocation, ns | a trap in it adds, ns | one in its free, ns | one in samplerd's typical code, ns |\n\
                   | --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for of in all {
        let _ = writeln!(out, "| {} | {} |", of.workload.name(), of.cells().join(" | "));
    }
    out
}
