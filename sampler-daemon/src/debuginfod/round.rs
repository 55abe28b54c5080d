//! Requests for debug files that are not in the cache: each asks one server after the other.

use super::cached::Cached;
use super::fetcher::{self, Fetched};
use super::files::{FAILED_PERIOD, Outcome};
use super::limits::Limits;
use super::servers::Servers;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

/// The servers, and which of them failed recently.
#[derive(Debug)]
pub(super) struct Round {
    cached: Arc<Cached>,
    servers: Servers,
    limits: Limits,
    /// For each server, the time and reason of its last failure. For [`FAILED_PERIOD`], a failed
    /// server is not asked, so that other files do not wait for that server.
    failed: Vec<Option<(Instant, String)>>,
}

impl Round {
    pub(super) fn new(cached: Arc<Cached>, servers: Servers, limits: Limits) -> Round {
        let failed = vec![None; servers.0.len()];
        Round { cached, servers, limits, failed }
    }

    /// Requests the debug file of a build id, and returns the outcome.
    pub(super) fn ask(&mut self, build_id: &str) -> Outcome {
        let mut reason = None;
        for at in 0..self.servers.0.len() {
            match self.ask_server(at, build_id) {
                Ok(Some(file)) => return Outcome::Here(file),
                Ok(None) => {}
                Err(why) => reason = Some(format!("{}: {why}", self.servers.0[at].name)),
            }
        }
        match reason {
            Some(reason) => Outcome::Failed(reason),
            None => {
                self.cached.cache.note_missing(build_id);
                Outcome::Missing
            }
        }
    }

    /// Requests the file from one server; `None` if the server has no such file.
    fn ask_server(&mut self, at: usize, build_id: &str) -> Result<Option<File>, String> {
        if let Some((since, why)) = &self.failed[at]
            && since.elapsed() < FAILED_PERIOD
        {
            return Err(why.clone());
        }
        let new =
            self.cached.cache.create(build_id).map_err(|error| format!("the cache: {error}"))?;
        let url = self.servers.0[at].debug_file(build_id);
        let limits = Limits { bytes: self.limits.bytes.min(new.max_bytes), ..self.limits };
        match fetcher::fetch(&self.cached.program, &url, &new.writer, limits) {
            Fetched::Whole => {}
            Fetched::Missing => return Ok(None),
            Fetched::Refused(why) => return Err(self.logged(at, why)),
            Fetched::Failed(why) => {
                self.failed[at] = Some((Instant::now(), why.clone()));
                return Err(self.logged(at, why));
            }
        }
        if let Some(why) = self.cached.wrong(build_id, &new.reader)? {
            return Err(self.logged(at, format!("what it sent is not used: {why}")));
        }
        let file = new.keep().map_err(|error| format!("the cache: {error}"))?;
        self.cached.cache.make_room();
        tracing::info!("debuginfod: {build_id} has come from {}", self.servers.0[at].name);
        Ok(Some(file))
    }

    fn logged(&self, at: usize, why: String) -> String {
        tracing::warn!("debuginfod: {}: {why}", self.servers.0[at].name);
        why
    }
}
