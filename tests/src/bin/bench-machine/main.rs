//! `cargo xtask bench machine`: cost of profiling many processes. Measured are attaching, a hit
//! with one and with all processes attached, a process that allocates nothing, and the idle daemon.
//!
//! Everything is measured with the real daemon. In each round every setup is measured once, in
//! random order. Costs are differences within a round, and are judged by ratios within a round.
//! Idle processes wait in `read`.

mod attach;
mod hits;
mod report;
mod rest;

use anyhow::{Context, Result};
use clap::Parser;
use sampler_tests::{Daemon, Workload, build, machine};
use std::time::Duration;

/// Measures what profiling many processes costs on this machine.
#[derive(Parser)]
#[command(name = "bench machine")]
struct Args {
    /// Rounds; each measures every setup once, in random order
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Idle processes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=1000))]
    processes: u32,
    /// Seconds that the daemon is watched at rest
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    rest: u64,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

/// Which processes a daemon profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// There is no daemon.
    Nothing,
    /// One process, by links of its own.
    One,
    /// All processes, each given, by links that all share.
    Given,
    /// Every process of the machine.
    All,
}

impl Setup {
    /// Name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setup::Nothing => "no daemon",
            Setup::One => "one --pid",
            Setup::Given => "all given by --pid",
            Setup::All => "--all",
        }
    }

    /// Starts the setup's daemon. `processes` are the one process of [`Setup::One`], and the idle
    /// ones.
    fn start(self, processes: &[u32]) -> Result<Option<Daemon>> {
        let daemon = match self {
            Setup::Nothing => return Ok(None),
            Setup::One => Daemon::start(&processes[..1], &[]),
            Setup::Given => Daemon::start(processes, &[]),
            Setup::All => Daemon::start(&[], &["--all"]),
        };
        daemon.map(Some).with_context(|| format!("start samplerd, {}", self.name()))
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let idle = (0..args.processes)
        .map(|_| Workload::start("storm.c", &["1", "64", "1", "0"]))
        .collect::<Result<Vec<_>>>()
        .context("start the idle processes")?;
    let pids: Vec<u32> = idle.iter().map(Workload::pid).collect();
    let attach = attach::measure(&pids, args.rounds)?;
    let hits = hits::measure(&pids, args.rounds)?;
    let rest = rest::measure(&pids, Duration::from_secs(args.rest))?;
    if args.json {
        println!("{:#}", report::json(&machine, args.processes, &attach, &hits, &rest));
    } else {
        print!("{}", report::text(&machine, args.processes, &attach, &hits, &rest));
    }
    Ok(())
}
