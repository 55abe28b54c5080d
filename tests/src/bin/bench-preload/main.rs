//! `cargo xtask bench preload`: cost of the preloaded library for a pair of malloc and free,
//! compared with a library that only forwards both to the same allocator. Measured on one thread
//! and on two, with no listener and with samplerd attached.
//!
//! Setups run in random order, round by round, and are compared within their round. Times are CPU
//! time of the threads.

mod report;
mod setup;

use anyhow::Result;
use clap::Parser;
use sampler_tests::machine;
use sampler_tests::progress::Progress;
use setup::{Programs, Setup};

/// Measures what the preloaded library costs on this machine.
#[derive(Parser)]
#[command(name = "bench preload")]
struct Args {
    /// Rounds; each runs every way once, in random order
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Pairs that each thread makes in a run
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pairs: u64,
    /// Mean bytes between samples
    #[arg(long, default_value_t = 512 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    interval: u64,
    /// Seed of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Nanoseconds of a pair by round, of a setup on this many threads.
pub(crate) struct Measured {
    pub(crate) way: Setup,
    pub(crate) threads: u32,
    pub(crate) times_ns: Vec<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let machine = machine::describe()?;
    let programs = Programs::prepare(args.pairs, args.interval)?;
    let cases = [1, 2].into_iter().flat_map(|threads| Setup::ALL.map(|way| (way, threads)));
    let mut all: Vec<Measured> =
        cases.map(|(way, threads)| Measured { way, threads, times_ns: Vec::new() }).collect();
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut order: Vec<usize> = (0..all.len()).collect();
    let progress = Progress::of("rounds", args.rounds as usize);
    for _ in 0..args.rounds {
        random.shuffle(&mut order);
        for index in &order {
            let of = &mut all[*index];
            of.times_ns.push(programs.run(of.way, of.threads)?);
        }
        progress.done();
    }
    drop(progress);
    report::print(&machine, &all, args.json);
    Ok(())
}
