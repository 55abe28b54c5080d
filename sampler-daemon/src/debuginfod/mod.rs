//! Debug files from debuginfod servers, asked by build id.
//!
//! A thread of its own asks for one file after the other; nobody waits for it. Of samplerd's root nothing goes to the network: each file is
//! fetched by a child without rights ([`serve`]), which writes into a file that samplerd has opened in the cache. A parser process reads the
//! build id of what arrived, and only a file of the right one gets its name in the cache.
//!
//! ```text
//!  symbolizer ── wants a build id ──▶ queue ──▶ this thread ── URL, file ──▶ samplerd-fetch ──▶ server
//!             ◀── the file, at the next question ── checked ◀──
//! ```
//!
//! Reference: debuginfod(8), debuginfod_find_debuginfo(3).

mod cache;
mod cached;
mod fetcher;
mod files;
mod limits;
mod round;
mod serve;
mod servers;

pub use cache::Cache;
pub use files::{Files, Standing};
pub use limits::Limits;
pub use serve::{VERB, serve};
pub use servers::Servers;

use crate::parser::DebugFiles;
use cached::Cached;
use round::Round;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

/// Build ids that may wait to be asked for; what would be more is counted, and may be asked for again.
const MAX_QUEUED: usize = 1024;

/// A handle to the thread; cheap to clone. The thread ends with the last one.
#[derive(Clone, Debug)]
pub struct Debuginfod {
    files: Arc<Files>,
    cached: Arc<Cached>,
    queue: SyncSender<String>,
}

impl Debuginfod {
    /// Starts the thread; `program` is samplerd, of which its children are made.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        program: &Path,
        servers: Servers,
        cache: Cache,
        limits: Limits,
    ) -> std::io::Result<Debuginfod> {
        let (queue, wanted) = mpsc::sync_channel::<String>(MAX_QUEUED);
        let files = Arc::new(Files::default());
        let cached = Arc::new(Cached::new(program, cache));
        let mut round = Round::new(Arc::clone(&cached), servers, limits);
        let known = Arc::clone(&files);
        std::thread::Builder::new().name("debuginfod".into()).spawn(move || {
            for build_id in wanted {
                let outcome = round.ask(&build_id);
                known.put(build_id, outcome);
            }
        })?;
        Ok(Debuginfod { files, cached, queue })
    }

    /// How far the file of a build id is.
    pub fn standing(&self, build_id: &str) -> Standing {
        self.files.standing(build_id)
    }

    /// What could not be had so far: a line for each reason.
    pub fn limits(&self) -> Vec<String> {
        self.files.limits()
    }
}

impl DebugFiles for Debuginfod {
    fn get(&self, build_id: &str) -> Option<Arc<File>> {
        self.files.get(build_id)
    }

    fn request(&self, build_id: &str) -> bool {
        if !cache::is_build_id(build_id) {
            return false;
        }
        if !self.files.may_ask(build_id) {
            return true;
        }
        // What other questions wait for at a server does not hold up what is here.
        if let Some(outcome) = self.cached.find(build_id) {
            self.files.put(build_id.to_owned(), outcome);
        } else if self.queue.try_send(build_id.to_owned()).is_err() {
            self.files.refuse(build_id);
        }
        true
    }
}
