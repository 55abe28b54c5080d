//! Prints the table of every pair of strategy and estimator: `cargo xtask simulate [--seed N]
//! [--runs N]`.
//!
//! Ends with 1 if a limit is broken that is known to hold.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::{apart, program, proofs, table};
use std::process::ExitCode;

/// The number after `name`, or `otherwise`.
fn argument(name: &str, otherwise: u64) -> Result<u64, String> {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == name) else {
        return Ok(otherwise);
    };
    let value = arguments.get(at + 1).cloned().unwrap_or_default();
    value.parse().map_err(|_| format!("{name} {value}: not a whole number (try {otherwise})"))
}

fn main() -> ExitCode {
    let (first, runs) = match (argument("--seed", 1), argument("--runs", 2000)) {
        (Ok(seed), Ok(runs)) => (seed, u32::try_from(runs.max(1)).unwrap_or(u32::MAX)),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let seeds = [0, 1, 2].map(|next| first.wrapping_add(next));
    println!("seeds {seeds:?}, {runs} runs each; asked for 95 %");
    println!("{}", table::HEAD);
    let (mut broken, mut unexpected) = (0, 0);
    for (strategy, estimators) in table::pairs() {
        for mix in program::Mix::all() {
            for expected in table::EXPECTED {
                for cell in table::cells(strategy, &estimators, &mix, expected, runs, &seeds) {
                    broken += usize::from(!cell.broken().is_empty());
                    unexpected += usize::from(!cell.unexpected().is_empty());
                    println!("{}", cell.line());
                }
            }
        }
    }
    println!("{broken} lines break a limit, {unexpected} of them one that is known to hold");
    for seed in seeds {
        println!("seed {seed}: {}", proofs::calibration(seed, runs / 5 + 1));
        println!("seed {seed}: {}", apart::apart(seed, 50.0, runs));
        println!("seed {seed}: {}", proofs::adaptation(seed, runs));
        println!("seed {seed}: {}", proofs::stacks_a_and_b(seed, runs));
    }
    ExitCode::from(u8::from(unexpected > 0))
}
