//! samplerd: profiles the allocations of running processes and serves the profiles over gRPC.

mod args;
mod guard;
mod http;
mod manual;
mod run;
mod web;

use std::io::Write as _;
use std::process::ExitCode;

/// The daemon's own allocations never meet its probes on libc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Args::from_command_line();
    match run::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Who cannot be told is not.
            let _ = writeln!(std::io::stderr(), "samplerd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
