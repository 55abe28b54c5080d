//! The options of debuginfod, from the command line and the environment.

use anyhow::{Context as _, anyhow};
use clap::Args as Group;
use sampler_daemon::debuginfod::{Cache, Debuginfod, Limits, Servers};
use std::env;
use std::path::{Path, PathBuf};

/// The variable that debuginfod's own clients read.
const URLS: &str = "DEBUGINFOD_URLS";

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
            return start(servers.clone(), program).context("--debuginfod");
        }
        let urls = env::var(URLS).unwrap_or_default();
        let servers = Servers::parse(&urls).map_err(|error| anyhow!(error));
        let started = servers.and_then(|servers| start(servers, program));
        // The variable may be set for all programs. So an error in it does not stop samplerd.
        Ok(started.unwrap_or_else(|error| {
            tracing::warn!("{URLS}: {error:#}: no debuginfod server is asked");
            None
        }))
    }
}

fn start(servers: Servers, program: &Path) -> anyhow::Result<Option<Debuginfod>> {
    if servers.is_empty() {
        return Ok(None);
    }
    let cache = Cache::open(&Cache::usual(|name| env::var_os(name).map(PathBuf::from)))?;
    let limits = Limits::usual(|name| env::var(name).ok());
    Debuginfod::start(program, servers, cache, limits).map(Some).context("start its thread")
}
