//! samplerd: profiles the allocations of running processes and serves the profiles over gRPC.

mod allocator;
mod api;
mod args;
mod debuginfod;
mod export;
mod guard;
mod http;
mod inject;
mod manual;
mod run;
mod web;

use sampler_daemon::bpf::guardian;
use sampler_daemon::{debuginfod as fetcher, parser};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::give_back_at_once();
    // The first three are for samplerd alone, so that no help text names them.
    let verb = std::env::args_os().nth(1).unwrap_or_default();
    let result = if verb == guardian::VERB {
        guardian::serve().map_err(anyhow::Error::from)
    } else if verb == parser::VERB {
        parser::serve().map_err(anyhow::Error::from)
    } else if verb == fetcher::VERB {
        fetcher::serve()
    } else {
        run::run(args::Args::from_command_line())
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody reads standard error, the message is dropped.
            let _ = writeln!(std::io::stderr(), "samplerd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
