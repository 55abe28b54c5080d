//! The project's own commands, run as `cargo xtask VERB`.
//!
//! They need nothing but a Rust toolchain to start: what else a verb needs it installs where it
//! can (Debian, as root) and otherwise names the exact commands.

mod ebpf;
mod linker;
mod packages;
mod stamp;
mod step;
mod toolchain;
mod traps;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    },
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
        Verb::BuildEbpf { force } => ebpf::build(&workspace, force),
    }
}
