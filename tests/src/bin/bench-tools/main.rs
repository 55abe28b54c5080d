//! `cargo xtask bench tools`: how much slower real programs run under samplerd, and under other profilers.
//!
//! Every program does rounds of the same work on command. A run is one program under one tool for some seconds of CPU
//! time; a repetition is a run of every tool on every program, in random order. Ratios are taken within a repetition.

mod attached;
mod clock;
mod goals;
mod headers;
mod program;
mod ratios;
mod repetitions;
mod report;
mod run;
mod scratch;
mod table;
mod tool;
mod toolbox;
mod workload;

use anyhow::{Context, Result};
use clap::Parser;
use repetitions::Plan;
use sampler_tests::{build, machine};
use scratch::Scratch;
use std::fs;
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
    /// Repetitions; each runs every tool on every workload once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Workloads, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Workload::named)]
    workloads: Vec<Workload>,
    /// Tools, separated by commas; `none` is always among them
    #[arg(long, value_delimiter = ',', value_parser = Tool::named)]
    tools: Vec<Tool>,
    /// Of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the JSON document goes [default: bench in cargo's target directory]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64> {
    let seconds: f64 = text.parse().context("not a number")?;
    anyhow::ensure!((0.1..=3600.0).contains(&seconds), "not from 0.1 to 3600");
    Ok(seconds)
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let kept = build::target_directory()?.join("bench");
    let output = args.output.unwrap_or_else(|| kept.clone());
    for directory in [&kept, &output] {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    let scratch = Scratch::create()?;
    let toolbox = Toolbox::open(&kept)?;
    let workloads = chosen(&Workload::ALL, &args.workloads);
    let tools = chosen(&Tool::ALL, &with_baselines(&args.tools));
    let plan = Plan { seconds: args.seconds, repetitions: args.repetitions, seed: args.seed };
    let rows = repetitions::run(&toolbox, &workloads, &tools, plan, &scratch);
    print!("{}", table::text(&machine, &plan, &rows));
    let path = output.join("tools.json");
    let json = format!("{:#}\n", report::json(&machine, &plan, &rows));
    fs::write(&path, json).with_context(|| format!("write {}", path.display()))?;
    println!("\n{}", path.display());
    Ok(())
}

/// Those of `all` that are wanted, in the order of `all`; all if none is named.
fn chosen<T: Copy + PartialEq>(all: &[T], wanted: &[T]) -> Vec<T> {
    all.iter().copied().filter(|of| wanted.is_empty() || wanted.contains(of)).collect()
}

/// The tools with what they are compared with.
fn with_baselines(tools: &[Tool]) -> Vec<Tool> {
    tools.iter().flat_map(|tool| [*tool, tool.baseline(), tool.baseline().baseline()]).collect()
}
