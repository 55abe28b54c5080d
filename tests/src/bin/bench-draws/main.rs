//! `cargo xtask bench draws`: cost of deciding which allocations are sampled. It compares an
//! exponential distance, a geometric distance, and a draw for every allocation. Distances are drawn
//! once per sample, in floating point or in integers.
//!
//! Methods and mixes of sizes run in random order, round by round. Times are CPU time of the
//! thread, for sizes drawn before. The number of samples of each method is compared with its
//! expectation.

mod draw_methods;
mod mixes;
mod report;

use anyhow::Result;
use clap::Parser;
use draw_methods::DrawMethod;
use mixes::Mix;
use sampler_tests::machine;
use std::time::Duration;

/// Measures what sampling decisions cost on this machine.
#[derive(Parser)]
#[command(name = "bench draws")]
struct Args {
    /// Rounds; each runs every way on every mix once, in random order
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Mean bytes between samples
    #[arg(long, default_value_t = 512 << 10, value_parser = clap::value_parser!(u64).range(2..=1 << 32))]
    interval: u64,
    /// Seed of sizes and draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

/// A method on a mix: nanoseconds of an allocation by round, and samples of all rounds.
pub(crate) struct Measured {
    pub(crate) way: DrawMethod,
    pub(crate) mix: usize,
    pub(crate) times_ns: Vec<f64>,
    pub(crate) samples: u64,
}

/// Draws of a method: nanoseconds of one draw, by round.
pub(crate) struct Drawn {
    pub(crate) way: DrawMethod,
    pub(crate) times_ns: Vec<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let machine = machine::describe()?;
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mixes = Mix::all(&mut random);
    let mut cases: Vec<Measured> = Vec::new();
    for mix in 0..mixes.len() {
        cases.extend(DrawMethod::ALL.map(|way| Measured {
            way,
            mix,
            times_ns: Vec::new(),
            samples: 0,
        }));
    }
    let mut draws = DrawMethod::ALL.map(|way| Drawn { way, times_ns: Vec::new() });
    let mut order: Vec<usize> = (0..cases.len() + draws.len()).collect();
    for _ in 0..args.rounds {
        random.shuffle(&mut order);
        for &index in &order {
            let seed = random.u64(..);
            if let Some(draw) = index.checked_sub(cases.len()).map(|index| &mut draws[index]) {
                draw.times_ns.push(draw.way.time_draws(args.interval, seed));
                continue;
            }
            let case = &mut cases[index];
            let (time_ns, samples) = case.way.time(&mixes[case.mix].sizes, args.interval, seed);
            case.times_ns.push(time_ns);
            case.samples += samples;
        }
    }
    if args.json {
        println!("{:#}", report::json(&machine, args.interval, &mixes, &cases, &draws));
    } else {
        print!("{}", report::text(&machine, args.interval, &mixes, &cases, &draws));
    }
    Ok(())
}

/// CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
