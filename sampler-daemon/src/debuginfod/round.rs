//! One question for a debug file: the cache, then one server after the other.

use super::cache::{Cache, Found};
use super::fetcher::{self, Fetched};
use super::files::{FAILED_PERIOD, Outcome};
use super::limits::Limits;
use super::servers::Servers;
use crate::parser;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Asks.
#[derive(Debug)]
pub(super) struct Round {
    program: PathBuf,
    servers: Servers,
    cache: Cache,
    limits: Limits,
    /// For each server: when it failed last, and why. It is left alone for [`FAILED_PERIOD`], so that other files do not wait for it.
    failed: Vec<Option<(Instant, String)>>,
}

impl Round {
    pub(super) fn new(program: &Path, servers: Servers, cache: Cache, limits: Limits) -> Round {
        let failed = vec![None; servers.0.len()];
        Round { program: program.to_owned(), servers, cache, limits, failed }
    }

    /// What comes of the question for a build id.
    pub(super) fn ask(&mut self, build_id: &str) -> Outcome {
        match self.cache.find(build_id) {
            Found::File(file) => match self.wrong(build_id, &file) {
                Ok(None) => return Outcome::Here(file),
                Ok(Some(why)) => {
                    tracing::warn!("debuginfod: {build_id} in the cache is removed: {why}");
                    self.cache.remove(build_id);
                }
                Err(why) => return Outcome::Failed(why),
            },
            Found::Missing => return Outcome::Missing,
            Found::Nothing => {}
        }
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
                self.cache.note_missing(build_id);
                Outcome::Missing
            }
        }
    }

    /// The file that a server has; `None`: it has none.
    fn ask_server(&mut self, at: usize, build_id: &str) -> Result<Option<File>, String> {
        if let Some((since, why)) = &self.failed[at]
            && since.elapsed() < FAILED_PERIOD
        {
            return Err(why.clone());
        }
        let new = self.cache.create(build_id).map_err(|error| format!("the cache: {error}"))?;
        let url = self.servers.0[at].debug_file(build_id);
        let limits = Limits { bytes: self.limits.bytes.min(new.max_bytes), ..self.limits };
        match fetcher::fetch(&self.program, &url, &new.writer, limits) {
            Fetched::Whole => {}
            Fetched::Missing => return Ok(None),
            Fetched::Refused(why) => return Err(self.logged(at, why)),
            Fetched::Failed(why) => {
                self.failed[at] = Some((Instant::now(), why.clone()));
                return Err(self.logged(at, why));
            }
        }
        if let Some(why) = self.wrong(build_id, &new.reader)? {
            return Err(self.logged(at, format!("what it sent is not used: {why}")));
        }
        let file = new.keep().map_err(|error| format!("the cache: {error}"))?;
        self.cache.make_room();
        tracing::info!("debuginfod: {build_id} has come from {}", self.servers.0[at].name);
        Ok(Some(file))
    }

    fn logged(&self, at: usize, why: String) -> String {
        tracing::warn!("debuginfod: {}: {why}", self.servers.0[at].name);
        why
    }

    /// What is wrong with a file that should have this build id.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn wrong(&self, build_id: &str, file: &File) -> Result<Option<String>, String> {
        Ok(match parser::build_id(&self.program, file)? {
            Some(found) if found == build_id => None,
            Some(found) => Some(format!("it has another build id, {found:?}")),
            None => Some("it is no ELF file with a build id".to_owned()),
        })
    }
}
