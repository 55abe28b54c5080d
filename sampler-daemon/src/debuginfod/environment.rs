//! Starts with the settings of the environment, as debuginfod's own clients read them.

use super::{Cache, Debuginfod, Limits, Servers};
use anyhow::{Context as _, anyhow};
use std::env;
use std::path::{Path, PathBuf};

/// The variable with the URLs of the servers.
pub const URLS: &str = "DEBUGINFOD_URLS";

impl Debuginfod {
    /// Asks the servers of `$DEBUGINFOD_URLS`; `None` if there are none. `program` is samplerd.
    ///
    /// # Errors
    /// If the variable is invalid, or as in [`Debuginfod::asking`].
    pub fn of_environment(program: &Path) -> anyhow::Result<Option<Debuginfod>> {
        let servers = Servers::parse(&env::var(URLS).unwrap_or_default());
        Debuginfod::asking(servers.map_err(|error| anyhow!(error))?, program)
    }

    /// Asks these servers, with the cache and the limits of the environment; `None` if there are
    /// no servers. `program` is samplerd.
    ///
    /// # Errors
    /// If there is no place for the cache, or if the thread cannot be started.
    pub fn asking(servers: Servers, program: &Path) -> anyhow::Result<Option<Debuginfod>> {
        if servers.is_empty() {
            return Ok(None);
        }
        let cache = Cache::open(&Cache::usual(|name| env::var_os(name).map(PathBuf::from)))?;
        let limits = Limits::usual(|name| env::var(name).ok());
        Debuginfod::start(program, servers, cache, limits).map(Some).context("start its thread")
    }
}
