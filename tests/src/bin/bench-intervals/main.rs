//! `cargo xtask bench intervals`: slowdown of a program and samples per second, by the sampling
//! interval and the strategy. The program is a python3 whose objects are malloc's, under the real
//! daemon.
//!
//! In each round the program does a block of work without probes. Then the program does one block
//! under samplerd with every setting in random order (`sampler set`), and one block without probes
//! again. Times are CPU time of the program, which includes its probes. Ratios are taken to the
//! blocks without probes of the same round.

mod figure;
mod report;
mod rounds;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rounds::Setting;
use sampler_common::sampling::Strategy;
use sampler_common::units;
use sampler_tests::{build, machine};
use std::fs;
use std::path::PathBuf;

/// Measures overhead and samples per second against the interval on this machine.
#[derive(Parser)]
#[command(name = "bench intervals")]
struct Args {
    /// Rounds; each measures every setting once, in random order
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Rounds of the program's work in a block
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    block: u32,
    /// Strategies, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = strategy,
          default_value = "geometric,stride,poisson,bernoulli")]
    strategies: Vec<Strategy>,
    /// Intervals, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = interval,
          default_value = "64B,1KiB,16KiB,128KiB,1MiB,16MiB,256MiB,4GiB")]
    intervals: Vec<u64>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot to this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn strategy(name: &str) -> Result<Strategy> {
    let found = Strategy::from_name(name);
    let names = Strategy::ALL.map(Strategy::name).join(", ");
    found.with_context(|| format!("no strategy {name:?} (there are {names})"))
}

fn interval(text: &str) -> Result<u64> {
    let bytes = units::parse_interval(text)?;
    // 64 bytes are the smallest stride.
    ensure!(bytes >= 64, "interval {text} is below 64B");
    Ok(bytes)
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let each = |strategy: &Strategy| {
        let strategy = *strategy;
        args.intervals
            .iter()
            .map(move |interval_bytes| Setting { strategy, interval_bytes: *interval_bytes })
    };
    let settings: Vec<Setting> = args.strategies.iter().flat_map(each).collect();
    let measured = rounds::run(&settings, args.rounds, args.block)?;
    if args.json {
        println!("{:#}", report::json(&machine, &measured));
    } else {
        print!("{}", report::text(&machine, &measured));
    }
    if let Some(path) = args.plot {
        let plot = figure::draw(&machine, &measured);
        fs::write(&path, plot).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
