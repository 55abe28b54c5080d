//! Shell completions and the manual page, instead of profiling.

use anyhow::{Context as _, Result};
use clap::{Args as Group, Command};
use clap_complete::Shell;
use sampler_daemon::manual;
use std::path::PathBuf;

/// The text below the options.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  samplerd --pid 4121 --inject            one process at low cost; then: sampler leaks
  samplerd --pid 4121 --web 127.0.0.1:0   with a page to open in a browser
  samplerd --pid 4121 --follow            and all that the process starts
  samplerd --all --http 127.0.0.1:9464    everything, with metrics

Exit status:
  0  stopped by SIGINT or SIGTERM, and nothing is attached any more
  1  it could not start or go on: standard error says why, in one line
  2  the command line is wrong: standard error says what to change

Environment:
  RUST_LOG  what is logged to standard error [default: info]

Files:
  /run/sampler/samplerd.sock  where the API is served if --listen is not given";

/// What is asked for instead of profiling.
#[derive(Clone, Debug, Group)]
pub(crate) struct Manual {
    /// Print completions for a shell, and exit
    #[arg(long, value_name = "SHELL", value_enum, exclusive = true)]
    completions: Option<Shell>,

    /// Write the manual page into this directory, and exit
    #[arg(long, value_name = "DIR", exclusive = true)]
    man: Option<PathBuf>,
}

impl Manual {
    /// Writes what is requested. Returns whether something was requested.
    pub(crate) fn serve(&self, command: Command) -> Result<bool> {
        if let Some(shell) = self.completions {
            let printed = manual::complete(command, shell, &mut std::io::stdout().lock());
            return printed.map(|()| true).context("print completions");
        }
        if let Some(directory) = &self.man {
            return manual::write_pages(command, "8", directory).map(|()| true);
        }
        Ok(false)
    }
}
