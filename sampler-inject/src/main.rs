//! `sampler-inject`: performs one operation on one process, and prints one line with its result.
//!
//! Exit code 0: done. 1: the process is left alone, for the reason that the line gives.
//! 2: something went wrong.

use clap::{Args, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, setrlimit};
use sampler_common::sampling::Rate;
use sampler_inject::preflight::Refusal;
use sampler_inject::{operation, steps, stop};
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum bytes of this process's address space. Two files of 256 MiB are read at most.
const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// Puts the in-process sampler into a running process, and takes it out.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
    /// Kill this process after so many steps: for tests.
    #[arg(long, hide = true, global = true)]
    die_after: Option<u64>,
}

#[derive(Subcommand)]
enum Verb {
    /// Put the sampler in
    Inject {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        library: Library,
        /// Mean bytes between samples
        #[arg(long, default_value_t = 512 << 10)]
        interval: u64,
    },
    /// Take it out
    Eject {
        #[command(flatten)]
        target: Target,
    },
    /// Say what speaks against it, by reading alone: no thread is stopped
    Examine {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        library: Library,
    },
    /// Say whether it can be put in
    Preflight {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        library: Library,
    },
}

#[derive(Args)]
struct Target {
    /// The process
    #[arg(long)]
    pid: i32,
}

#[derive(Args)]
struct Library {
    /// The sampler's library (libsampler_preload.so)
    #[arg(long)]
    library: PathBuf,
}

fn main() -> ExitCode {
    let command = Command::parse();
    if let Some(steps) = command.die_after {
        steps::die_after(steps);
    }
    // The kernel's out-of-memory killer must not kill this process in the middle of an operation.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // A file of the target may claim any size, and this process would be the last to be killed.
    let limit = Rlimit { current: Some(MAX_MEMORY_BYTES), maximum: Some(MAX_MEMORY_BYTES) };
    if let Err(error) = setrlimit(Resource::As, limit) {
        println!("failed: limit the memory of this process: {error}");
        return ExitCode::from(2);
    }
    match run(command.verb) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let is_late = matches!(error.downcast_ref(), Some(stop::Error::Late { .. }));
            let is_refusal = is_late || error.downcast_ref::<Refusal>().is_some();
            let what = if is_refusal { "refused" } else { "failed" };
            println!("{what}: {error:#}");
            ExitCode::from(if is_refusal { 1 } else { 2 })
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<operation::Report> {
    match verb {
        Verb::Inject { target, library, interval } => {
            let rate = Rate::from_interval(interval)
                .ok_or_else(|| anyhow::anyhow!("no rate for an interval of {interval} bytes"))?;
            operation::inject(target.pid, &library.library, rate)
        }
        Verb::Eject { target } => operation::eject(target.pid),
        Verb::Examine { target, library } => operation::examine(target.pid, &library.library),
        Verb::Preflight { target, library } => operation::preflight(target.pid, &library.library),
    }
}
