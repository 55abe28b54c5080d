//! `cargo xtask bench daemon`: cost of samplerd itself. The benchmark measures the processor time
//! for each sample by rate and depth of stacks, memory, the largest rate without loss, and the
//! losses at higher rates. It also measures the time to the first profile, and of queries with many
//! stacks.
//!
//! The program (`benches/stacks.c`) is sampled at every allocation, so its rate is the rate of
//! samples. In each round every case is measured once, in random order.

mod case;
mod markdown;
mod program;
mod query;
mod report;

use anyhow::Result;
use case::{Case, Measured};
use clap::Parser;
use sampler_tests::progress::Progress;
use sampler_tests::{build, docs, machine};

/// Measures what samplerd costs on this machine, beside the probes.
#[derive(Parser)]
#[command(name = "bench daemon")]
struct Args {
    /// Rounds; each measures every case once, in random order
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each case
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Distinct stacks of the questions
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    stacks: u32,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Write the tables into docs/benchmarks.md
    #[arg(long)]
    write_docs: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let cases = Case::all();
    let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
    let progress = Progress::of("cases", args.rounds as usize * cases.len());
    for _ in 0..args.rounds {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        fastrand::shuffle(&mut order);
        for index in order {
            measured[index].push(cases[index].measure(args.seconds)?);
            progress.done();
        }
    }
    drop(progress);
    let cases: Vec<(Case, Vec<Measured>)> = cases.into_iter().zip(measured).collect();
    let queries = query::measure(args.stacks)?;
    if args.json {
        println!("{:#}", report::json(&machine, &cases, &queries));
    } else {
        print!("{}", report::text(&machine, &cases, &queries));
    }
    if args.write_docs {
        let tables = markdown::tables(&cases, &queries);
        let options =
            format!("bench daemon -- --rounds {} --seconds {}", args.rounds, args.seconds);
        docs::write("daemon", &tables, &machine, &options)?;
    }
    Ok(())
}
