//! `cargo xtask bench counters`: compares the counters of `sampler_common::counting`. Measured are
//! the counted values and the cost of an event, with one thread, one for each processor and twice
//! as many. The scalable counter runs with every switch-over. Everything is measured in this run;
//! formulas are drawn with the measurements.
//!
//! Cases run in random order, round by round, so that drift of the machine affects all alike.
//! Ratios are taken within a round. Times are CPU time of the counting threads.

mod accuracy;
mod cases;
#[path = "../../../../sampler-common/tests/common/counters.rs"]
mod counters;
mod figure;
mod report;
mod rounds;

use anyhow::{Context, Result};
use cases::Case;
use clap::Parser;
use sampler_tests::machine;
use std::fs;
use std::path::PathBuf;

/// Measures what shared counters count and cost on this machine.
#[derive(Parser)]
#[command(name = "bench counters")]
struct Args {
    /// Rounds; each runs every case once, in random order
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Repetitions from which the errors of the scalable counter are taken
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    repetitions: u32,
    /// Seed of all random sources
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot to this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let machine = machine::describe()?;
    let plan = Case::all(machine.cpus);
    let measured = rounds::run(&plan, args.rounds, args.seed, machine.cpus);
    let errors = accuracy::measure(args.repetitions, args.seed);
    if args.json {
        println!("{:#}", report::json(&machine, &measured, &errors));
    } else {
        print!("{}", report::text(&machine, &measured, &errors));
    }
    if let Some(path) = args.plot {
        let plot = figure::draw(&machine, &measured, &errors);
        fs::write(&path, plot).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
