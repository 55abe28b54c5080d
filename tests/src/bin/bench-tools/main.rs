//! `cargo xtask bench tools`: how much slower real programs run under samplerd, and under other
//! profilers.
//!
//! Every program does rounds of the same work on command. A run is one program under one tool for
//! some seconds of CPU time. A repetition is a run of every tool on every program, in random order.
//! Ratios are taken within a repetition. The benchmark also measures the errors of samplerd's
//! figures against exact ones, and the growth of its cost.

mod accuracy;
mod attached;
mod clock;
mod coverage;
mod exact;
mod figure;
mod goals;
mod growth;
mod headers;
mod held;
mod injected;
mod kind;
mod layout;
mod library;
mod markdown;
mod output;
mod pair;
mod pooled;
mod program;
mod ratios;
mod repetitions;
mod report;
mod run;
mod scratch;
mod table;
mod tool;
mod toolbox;
mod turns;
mod windows;
mod workload;

use anyhow::{Context, Result};
use clap::Parser;
use output::Output;
use repetitions::{Plan, Row};
use sampler_tests::{build, machine};
use scratch::Scratch;
use std::path::PathBuf;
use tool::Tool;
use toolbox::Toolbox;
use workload::Workload;

/// Compares what profilers cost real programs on this machine.
#[derive(Parser)]
#[command(name = "bench tools")]
struct Args {
    /// CPU seconds of each run
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Repetitions; each runs everything once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Workloads, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Workload::named)]
    workloads: Vec<Workload>,
    /// Tools, separated by commas; what they are compared with is always among them
    #[arg(long, value_delimiter = ',', value_parser = Tool::named)]
    tools: Vec<Tool>,
    /// CPU seconds of each program that is profiled in windows
    #[arg(long, default_value_t = 120.0, value_parser = seconds)]
    windows_seconds: f64,
    /// Runs of each program whose windows are compared with the truth, each of `windows-seconds`
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    coverage_runs: u32,
    /// CPU seconds of each program with a library that only forwards, and with ours while nobody listens, with a
    /// listener that does nothing, and with samplerd
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    library_seconds: f64,
    /// CPU seconds of each program with the sampler injected, for each of the states that it is compared in
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    inject_seconds: f64,
    /// Seconds of each program whose held bytes are estimated
    #[arg(long, default_value_t = 120.0, value_parser = seconds)]
    held_seconds: f64,
    /// Only these parts: slowdown, windows, coverage, library, inject, held, accuracy, growth
    /// [default: all but coverage, which takes hours]
    #[arg(long, value_delimiter = ',', value_parser = Part::named)]
    only: Vec<Part>,
    /// Of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Templates in the source of cc1plus, 20 for a second or so
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    templates: u32,
    /// Where JSON and plots go [default: bench in cargo's target directory]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Make PNGs of the plots, too
    #[arg(long)]
    png: bool,
    /// Write the tables into docs/benchmarks.md and the plots beside it
    #[arg(long)]
    write_docs: bool,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Programs under tools.
    Slowdown,
    /// Programs that are profiled in windows.
    Windows,
    /// Intervals of windows against exact bytes.
    Coverage,
    /// Programs with the library that samples inside them.
    Library,
    /// Programs with the in-process sampler injected.
    Inject,
    /// Width of the interval of held bytes within a budget.
    Held,
    /// samplerd's figures against exact ones.
    Accuracy,
    /// Cost against what grows.
    Growth,
}

impl Part {
    const ALL: [(&str, Part); 8] = [
        ("slowdown", Part::Slowdown),
        ("windows", Part::Windows),
        ("coverage", Part::Coverage),
        ("library", Part::Library),
        ("inject", Part::Inject),
        ("held", Part::Held),
        ("accuracy", Part::Accuracy),
        ("growth", Part::Growth),
    ];

    fn named(name: &str) -> Result<Part> {
        let names = Part::ALL.map(|(name, _)| name).join(", ");
        let found = Part::ALL.into_iter().find(|(of, _)| *of == name);
        Ok(found.with_context(|| format!("no part {name:?} (there are {names})"))?.1)
    }
}

fn seconds(text: &str) -> Result<f64> {
    let seconds: f64 = text.parse().context("not a number")?;
    anyhow::ensure!((0.1..=3600.0).contains(&seconds), "not from 0.1 to 3600");
    Ok(seconds)
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let kept = build::target_directory()?.join("bench");
    let plan = Plan {
        seconds: args.seconds,
        repetitions: args.repetitions,
        seed: args.seed,
        templates: args.templates,
    };
    let output = Output {
        machine: machine::describe()?,
        plan,
        directory: args.output.clone().unwrap_or_else(|| kept.clone()),
        png: args.png,
        docs: args.write_docs,
    };
    output.prepare(&kept)?;
    let scratch = Scratch::create()?;
    let workloads = chosen(&Workload::ALL, &args.workloads);
    let usual = |part: &Part| !args.only.is_empty() || *part != Part::Coverage;
    for part in chosen(&Part::ALL.map(|(_, part)| part), &args.only).into_iter().filter(usual) {
        match part {
            Part::Slowdown => {
                let tools = chosen(&Tool::ALL, &with_baselines(&args.tools));
                let toolbox = Toolbox::open(&kept)?;
                // The rows are written after each repetition: many repetitions take hours.
                let keep = |rows: &[Row]| output.keep(rows);
                let rows = repetitions::run(&toolbox, &workloads, &tools, plan, &scratch, keep)?;
                output.slowdowns(&rows)?;
            }
            Part::Windows => {
                let seconds = args.windows_seconds;
                let all = windows::measure(&workloads, seconds, args.seed, &scratch);
                output.windows(&all, seconds)?;
            }
            Part::Coverage => {
                let (runs, seconds) = (args.coverage_runs, args.windows_seconds);
                let all = coverage::measure(&workloads, runs, seconds, &scratch);
                output.coverage(&all, runs, seconds)?;
            }
            Part::Library => {
                let seconds = args.library_seconds;
                let all = library::measure(&workloads, seconds, args.seed, &scratch);
                output.library(&all, seconds)?;
            }
            Part::Inject => {
                let seconds = args.inject_seconds;
                let all = injected::measure(&workloads, seconds, args.seed, &scratch);
                output.injected(&all, seconds)?;
            }
            Part::Held => {
                let seconds = args.held_seconds;
                output.held(&held::measure(&workloads, seconds, &scratch), seconds)?;
            }
            Part::Accuracy => output.accuracy(&accuracy::measure(&workloads, plan, &scratch))?,
            Part::Growth => output.growth(&growth::measure(plan, &scratch))?,
        }
    }
    Ok(())
}

/// The items of `all` that are wanted, in the order of `all`. All items if none is named.
fn chosen<T: Copy + PartialEq>(all: &[T], wanted: &[T]) -> Vec<T> {
    all.iter().copied().filter(|of| wanted.is_empty() || wanted.contains(of)).collect()
}

/// The tools with their baselines.
fn with_baselines(tools: &[Tool]) -> Vec<Tool> {
    tools.iter().flat_map(|tool| [*tool, tool.baseline(), Tool::None]).collect()
}
