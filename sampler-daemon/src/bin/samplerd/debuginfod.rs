//! The options of debuginfod, from the command line and the environment.

use anyhow::Context as _;
use clap::Args as Group;
use sampler_daemon::debuginfod::{Debuginfod, Servers, URLS};
use std::path::Path;

/// Servers of debug information.
#[derive(Clone, Debug, Group)]
pub(crate) struct Names {
    /// Ask these debuginfod servers for names and lines that no file here has: URLs with blanks between them; '' for none
    /// [default: $DEBUGINFOD_URLS]. They learn the build ids of what is profiled
    #[arg(long = "debuginfod", value_name = "URLS", value_parser = Servers::parse)]
    servers: Option<Servers>,
}

impl Names {
    /// Starts the debuginfod thread if there are servers. `program` is samplerd.
    pub(crate) fn start(&self, program: &Path) -> anyhow::Result<Option<Debuginfod>> {
        if let Some(servers) = &self.servers {
            return Debuginfod::asking(servers.clone(), program).context("--debuginfod");
        }
        // The variable may be set for all programs. So an error in it does not stop samplerd.
        Ok(Debuginfod::of_environment(program).unwrap_or_else(|error| {
            tracing::warn!("{URLS}: {error:#}: no debuginfod server is asked");
            None
        }))
    }
}
