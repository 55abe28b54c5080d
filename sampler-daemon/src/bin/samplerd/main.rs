//! samplerd: profiles the allocations of running processes and serves the profiles over gRPC.

mod api;
mod args;
mod guard;
mod http;
mod inject;
mod manual;
mod run;
mod web;

use sampler_daemon::bpf::guardian;
use std::io::Write as _;
use std::process::ExitCode;

/// The daemon's own allocations never meet its probes on libc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // It is for samplerd alone, so that no help text names it.
    let is_guardian = std::env::args_os().nth(1).is_some_and(|verb| verb == guardian::VERB);
    let result = match is_guardian {
        true => guardian::serve().map_err(anyhow::Error::from),
        false => run::run(args::Args::from_command_line()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Who cannot be told is not.
            let _ = writeln!(std::io::stderr(), "samplerd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
