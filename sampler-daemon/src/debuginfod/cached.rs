//! Debug files from the cache, whose build ids are checked.

use super::cache::{Cache, Found};
use super::files::Outcome;
use crate::parser;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The cache, and the program whose parser checks the cache's files.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) program: PathBuf,
    pub(super) cache: Cache,
}

impl Cached {
    pub(super) fn new(program: &Path, cache: Cache) -> Cached {
        Cached { program: program.to_owned(), cache }
    }

    /// The outcome for a build id without asking a server; `None` if the cache has no valid entry.
    /// Waits at most as long as reading a local file takes.
    pub(super) fn find(&self, build_id: &str) -> Option<Outcome> {
        let file = match self.cache.find(build_id) {
            Found::File(file) => file,
            Found::Missing => return Some(Outcome::Missing),
            Found::Nothing => return None,
        };
        match self.wrong(build_id, &file) {
            Ok(None) => Some(Outcome::Here(file)),
            Ok(Some(why)) => {
                tracing::warn!("debuginfod: {build_id} in the cache is removed: {why}");
                self.cache.remove(build_id);
                None
            }
            Err(why) => Some(Outcome::Failed(why)),
        }
    }

    /// Returns why a file is not the debug file of this build id; `None` if it is the right file.
    ///
    /// # Errors
    /// If the file cannot be read: the reason.
    pub(super) fn wrong(&self, build_id: &str, file: &File) -> Result<Option<String>, String> {
        Ok(match parser::build_id(&self.program, file)? {
            Some(found) if found == build_id => None,
            Some(found) => Some(format!("it has another build id, {found:?}")),
            None => Some("it is no ELF file with a build id".to_owned()),
        })
    }
}
