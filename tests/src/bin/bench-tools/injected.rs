//! Cost of the in-process sampler in a running process (`samplerd --inject`), with samplerd
//! attached and following frees, and with no listener.
//!
//! Two processes of a program take turns, as in [`crate::library`]. One of them is injected and
//! ejected several times. Turns of the two processes without an injection show how equal the
//! processes are. Their ratio divides the ratios of the other states: two processes of a program
//! differ by a few percent, because their memory is laid out differently.

use crate::attached::Attached;
use crate::layout::Layout;
use crate::library::mean;
use crate::pair::{Pair, slowdown_text};
use crate::scratch::Scratch;
use crate::toolbox::ours;
use crate::workload::{self, Workload};
use anyhow::Result;
use fastrand::Rng;
use sampler_common::limits::PRELOADED_PER_SECOND;
use sampler_common::units::grouped;
use sampler_tests::inject;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Largest slowdown of a program by an injection.
const MAX_SLOWDOWN: f64 = 1.02;
/// Largest slowdown of a program by an injection with a budget of 1 %.
const MAX_BUDGET_SLOWDOWN: f64 = 1.015;
/// Pairs of processes for each program.
const PAIRS: u32 = 8;
const INTERVAL_BYTES: u64 = 512 << 10;

/// State of the second process of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is injected: the measured difference is that of two equal processes.
    Native,
    /// The sampler is injected, and nobody listens.
    Unheard,
    /// The sampler is injected, and samplerd has a budget of 1 %.
    Budget,
    /// The sampler is injected, and samplerd has its default limit of samples.
    Default,
}

impl State {
    const ALL: [State; 4] = [State::Native, State::Unheard, State::Budget, State::Default];

    /// Puts a process into this state.
    fn enter(self, pid: u32) -> Result<Attached> {
        // A process that takes turns with another runs for half of a second. It gets half of the
        // samples.
        let half = (PRELOADED_PER_SECOND / 2).to_string();
        match self {
            State::Native => Ok(Attached::Nothing),
            State::Unheard => inject::inject(pid, INTERVAL_BYTES).map(|_| Attached::Nothing),
            State::Budget => {
                ours(pid, &["--max-overhead", "1%", "--max-samples-per-second", "25000"])
            }
            State::Default => ours(
                pid,
                &[
                    "--inject",
                    "--max-samples-per-second",
                    "25000",
                    "--max-samples-per-process",
                    &half,
                ],
            ),
        }
    }

    /// Undoes what [`State::enter`] has done.
    fn leave(self, pid: u32, attached: Attached) -> Result<()> {
        attached.detach()?;
        match self {
            State::Unheard => inject::eject(pid).map(drop),
            _ => Ok(()),
        }
    }
}

/// A program with the sampler injected.
#[derive(Clone, Debug)]
pub(crate) struct Injected {
    workload: Workload,
    /// CPU time of a round divided by that of the other process of the pair, with its standard
    /// error, by state. All states but the first are divided by the first state of the same pair,
    /// if it is the same pair.
    slowdowns: [(f64, f64); 4],
    /// Samples in a second of the program's CPU time, by state.
    rates: [f64; 4],
}

impl Injected {
    fn slowdown(&self, state: State) -> (f64, f64) {
        self.slowdowns[state as usize]
    }

    fn verdict(&self) -> &'static str {
        match self.workload {
            // A program that only calls malloc and free is no real program. It has no goal here.
            Workload::Pairs | Workload::PairsTwo => "",
            _ => {
                let is_met = self.slowdown(State::Default).0 <= MAX_SLOWDOWN;
                match (is_met, self.slowdown(State::Budget).0 <= MAX_BUDGET_SLOWDOWN) {
                    (true, true) => "both met",
                    (true, false) => "first met",
                    (false, true) => "second met",
                    (false, false) => "missed",
                }
            }
        }
    }

    fn cells(&self) -> [String; 6] {
        let text = |state| slowdown_text(self.slowdown(state));
        let rate = |state: State| grouped(self.rates[state as usize].round() as u64);
        [
            text(State::Native),
            text(State::Unheard),
            text(State::Default),
            rate(State::Default),
            text(State::Budget),
            rate(State::Budget),
        ]
    }
}

/// Runs every workload for this many seconds of CPU time in each state. A workload that fails is
/// named and left out.
pub(crate) fn measure(
    workloads: &[Workload],
    seconds: f64,
    seed: u64,
    scratch: &Scratch,
) -> Vec<Injected> {
    let mut random = Rng::with_seed(seed);
    workload::each(workloads, "inject", |of| run(of, seconds, &mut random, scratch))
}

fn run(workload: Workload, seconds: f64, random: &mut Rng, scratch: &Scratch) -> Result<Injected> {
    let each_s = seconds / f64::from(PAIRS);
    let mut slowdowns = [const { Vec::new() }; 4];
    let [mut cpu_s, mut samples] = [[0.0; 4]; 2];
    for _ in 0..PAIRS {
        let start = || Pair::start(workload, each_s, Layout::Random, &[], None, scratch);
        let mut pair = start()?;
        let mut states = State::ALL;
        random.shuffle(&mut states);
        for state in states {
            if pair.is_once() && state != states[0] {
                // The round of the process was its last.
                pair = start()?;
            }
            pair.attached = state.enter(pair.pid())?;
            pair.warm_up(each_s)?;
            let before = pair.attached.samples()?.taken;
            let turned = pair.run(each_s, random)?;
            slowdowns[state as usize].push(turned.slowdown().0);
            samples[state as usize] += pair.attached.samples()?.taken - before;
            cpu_s[state as usize] += turned.cpu_s();
            let attached = std::mem::replace(&mut pair.attached, Attached::Nothing);
            if pair.is_once() {
                // The process has ended, and the injected sampler with it.
                attached.detach()?;
            } else {
                state.leave(pair.pid(), attached)?;
            }
        }
    }
    // The states of a program that ends with its round have pairs of their own.
    if workload != Workload::Compiler {
        let [native, injected @ ..] = &mut slowdowns;
        for of in injected {
            of.iter_mut().zip(&*native).for_each(|(of, native)| *of /= native);
        }
    }
    Ok(Injected {
        workload,
        slowdowns: slowdowns.map(|of| mean(&of)),
        rates: State::ALL.map(|of| samples[of as usize] / cpu_s[of as usize]),
    })
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Injected]) -> String {
    let mut out = format!(
        "\ninjected sampler at 512 KiB: CPU time by that without an injection (95 %);\n\
         nothing injected (against a process beside it), nobody listens, samplerd,\n\
         samplerd with --max-overhead 1%;\n\
         goal of the third ≤ {MAX_SLOWDOWN}, of the last ≤ {MAX_BUDGET_SLOWDOWN}\n"
    );
    for of in all {
        let [native, unheard, default, _, budget, _] = of.cells();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<16}{native:<15}{unheard:<15}{default:<15}{budget:<15}{}",
            of.workload.name(),
            of.verdict()
        );
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Injected]) -> Value {
    let state = |of: &Injected, state: State| {
        let (slowdown, error) = of.slowdown(state);
        json!({
            "slowdown": slowdown, "slowdown_error": error,
            "samples_per_second": of.rates[state as usize],
        })
    };
    let one = |of: &Injected| {
        json!({
            "workload": of.workload.name(), "native": state(of, State::Native),
            "unheard": state(of, State::Unheard), "default": state(of, State::Default),
            "budget": state(of, State::Budget),
        })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Injected]) -> String {
    let mut out = "|  | nothing injected | nobody listens | samplerd | samples per CPU second | `--max-overhead 1%` | samples per CPU second | goals |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for of in all {
        let cells = of.cells().join(" | ");
        let _ = writeln!(out, "| {} | {cells} | {} |", of.workload.name(), of.verdict());
    }
    out
}
