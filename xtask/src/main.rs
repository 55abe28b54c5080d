//! The project's own commands, run as `cargo xtask VERB`.
//!
//! The commands need only a Rust toolchain to start. A verb installs what else it needs where it
//! can (Debian, as root), and otherwise names the exact commands.

mod bench;
mod book;
mod check;
mod commands;
mod demo;
mod ebpf;
mod fleet;
mod fuzz;
mod licences;
mod linker;
mod miri;
mod newcomer;
mod notices;
mod package;
mod packages;
mod preload;
mod prologues;
mod pythons;
mod simulate;
mod stamp;
mod step;
mod steps;
mod suites;
mod targets;
mod test;
mod tool;
mod toolchain;
mod traps;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bench::Benchmark;
use crate::test::Selection;
use crate::workspace::Workspace;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the eBPF objects that samplerd carries, and check them
    BuildEbpf {
        /// Build even if no input changed since the last build
        #[arg(long)]
        force: bool,
        /// Compile the program's debug log in (samplerd shows it with RUST_LOG=debug)
        #[arg(long)]
        log: bool,
    },
    /// Build the library that `sampler run --preload` puts into programs
    BuildPreload,
    /// Format, lints, documentation, licences, layers, unit and property tests: no root needed
    Check,
    /// Set this machine up, check everything and run every test (as root)
    Test {
        /// Run only the tests whose names contain this, and no lints
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Print the table of `simulate`, too
        #[arg(long)]
        simulations: bool,
        /// Run the tests that take long, too, and inject each program 200 times (installs MariaDB and a JDK)
        #[arg(long)]
        long: bool,
        /// Ask Spark, too, in the tests of exported tables (installs 400 MB; it needs a Java runtime)
        #[arg(long)]
        fleet: bool,
    },
    /// Set this machine up, start a program and show its live profile (as root)
    Demo,
    /// Follow README.md in a new Debian: build all, find the leaks of three services (as root; half an hour)
    Newcomer,
    /// Simulate every pair of strategy and estimator: bias, coverage, widths
    Simulate {
        /// First of three seeds
        #[arg(long, value_name = "N", default_value_t = simulate::SEED)]
        seed: u64,
        /// Runs per line and seed
        #[arg(long, value_name = "N", default_value_t = simulate::RUNS, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
    },
    /// Fuzz what reads files, strings and messages of others, by libFuzzer
    Fuzz {
        /// Targets; all if none is named
        targets: Vec<String>,
        /// Seconds for each target
        #[arg(long, value_name = "N", default_value_t = fuzz::SECONDS)]
        seconds: u32,
    },
    /// Run the tests of lock-free tables and of shared code by Miri, if a toolchain has it
    Miri,
    /// Collect the beginnings of allocators' functions from Debian's packages (fetches 60 MB)
    Prologues,
    /// Make a site of the documentation, by mdBook
    Book,
    /// Write docs/options.md: what the programs print with --help
    Commands,
    /// Make the Debian package
    Package {
        /// Install, upgrade and remove it in a Debian made for that, with systemd (as root; fetches 60 MB)
        #[arg(long)]
        test: bool,
    },
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// What one hit of a probe costs, ours against empty programs (as root)
    Probe {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What counters that CPUs share count and cost
    Counters {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What it costs to decide which allocations are sampled
    Draws {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What many processes cost: attaching, hits, the daemon at rest (as root)
    Machine {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What the daemon itself costs: samples, memory, questions (as root)
    Daemon {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Slowdown of real programs under this and other profilers, and accuracy (as root)
    Tools {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What the preloaded library costs a pair of malloc and free (as root)
    Preload {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What Python frames add to the cost of a sample (as root)
    Python {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// CPU time and bytes of a push, by destination and number of stacks (as root)
    Export {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Overhead and samples per second of a real program by the sampling interval (as root)
    Intervals {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl Bench {
    fn parts(&self) -> (Benchmark, &[OsString]) {
        match self {
            Bench::Probe { arguments } => (Benchmark::Probe, arguments),
            Bench::Counters { arguments } => (Benchmark::Counters, arguments),
            Bench::Draws { arguments } => (Benchmark::Draws, arguments),
            Bench::Intervals { arguments } => (Benchmark::Intervals, arguments),
            Bench::Machine { arguments } => (Benchmark::Machine, arguments),
            Bench::Daemon { arguments } => (Benchmark::Daemon, arguments),
            Bench::Tools { arguments } => (Benchmark::Tools, arguments),
            Bench::Preload { arguments } => (Benchmark::Preload, arguments),
            Bench::Python { arguments } => (Benchmark::Python, arguments),
            Bench::Export { arguments } => (Benchmark::Export, arguments),
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let workspace = Workspace::locate()?;
    match arguments.verb {
        Verb::BuildEbpf { force, log } => ebpf::build(&workspace, force, log),
        Verb::Check => check::run(&workspace),
        Verb::Test { filter, simulations, long, fleet } => {
            test::run(&workspace, &Selection { filter, simulations, long, fleet })
        }
        Verb::Simulate { seed, runs } => simulate::run(&workspace, seed, runs),
        Verb::Fuzz { targets, seconds } => fuzz::run(&workspace, &targets, seconds),
        Verb::Miri => miri::run(&workspace, &miri::toolchain()?),
        Verb::Demo => demo::run(&workspace),
        Verb::Newcomer => newcomer::run(&workspace),
        Verb::Book => book::build(&workspace),
        Verb::Commands => commands::write(&workspace),
        Verb::BuildPreload => preload::build(&workspace).map(drop),
        Verb::Package { test: false } => package::build(&workspace),
        Verb::Package { test: true } => package::test(&workspace),
        Verb::Prologues => prologues::collect(&workspace),
        Verb::Bench(bench) => {
            let (benchmark, arguments) = bench.parts();
            bench::run(&workspace, benchmark, arguments)
        }
    }
}
