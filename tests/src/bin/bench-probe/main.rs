//! `cargo xtask bench probe`: cost of a hit of samplerd's probes, compared with empty programs and
//! with memleak's programs, and cost of samplerd in addition. Everything is measured in this run;
//! nothing is read from a file.
//!
//! A target process times blocks of calls. Meanwhile this program attaches nothing, an empty
//! program of the same attach type at the same instruction, or samplerd's program, in random order
//! and many rounds. The cost of a hit is the time with a probe less the time without a probe, of
//! the same round. Goals are judged by the median over the rounds of the ratio of such costs.

mod attach;
mod cases;
mod daemon;
mod ours;
mod report;
mod rounds;
mod target;

use anyhow::Result;
use attach::Bench;
use cases::CASES;
use clap::Parser;
use sampler_tests::{build, machine};

/// Measures what the probes and samplerd cost on this machine.
#[derive(Parser)]
#[command(name = "bench probe")]
struct Args {
    /// Rounds; each measures every variant of every case once, in random order
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Only the cases whose name contains this; `samplerd` is the daemon's
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let wanted = |name: &str| args.only.as_deref().is_none_or(|text| name.contains(text));
    let machine = machine::describe()?;
    let cases: Vec<_> = CASES.iter().copied().filter(|case| wanted(case.name)).collect();
    let cases = match cases.is_empty() {
        true => Vec::new(),
        false => rounds::run(&mut Bench::prepare()?, &cases, args.rounds)?,
    };
    let daemon = if wanted("samplerd") { Some(daemon::measure()?) } else { None };
    if args.json {
        println!("{:#}", report::json(&machine, &cases, daemon.as_ref()));
    } else {
        print!("{}", report::text(&machine, &cases, daemon.as_ref()));
    }
    Ok(())
}
