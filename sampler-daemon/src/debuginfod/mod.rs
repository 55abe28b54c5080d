//! Debug files from debuginfod servers, asked by build id.
//!
//! A thread of its own requests one file after the other. No caller waits for it. No connection is
//! made with samplerd's rights: a child without rights ([`serve`]) fetches each file, and writes it
//! into a file that samplerd has opened in the cache. A parser process reads the build id of the
//! received file. The file gets its name in the cache only if its build id is right.
//!
//! ```text
//!  symbolizer ── wants a build id ──▶ queue ──▶ this thread ── URL, file ──▶ samplerd-fetch ──▶ server
//!             ◀── the file, at the next question ── checked ◀──
//! ```
//!
//! Reference: debuginfod(8), debuginfod_find_debuginfo(3).

mod cache;
mod cached;
mod environment;
mod fetcher;
mod files;
mod limits;
mod round;
mod serve;
mod servers;

pub use cache::Cache;
pub use environment::URLS;
pub use files::{FileState, Files};
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

/// Maximum number of build ids in the queue. Further build ids are counted as refused, and can be
/// requested again.
const MAX_QUEUED: usize = 1024;

/// A handle to the thread; cheap to clone. The thread ends with its last handle.
#[derive(Clone, Debug)]
pub struct Debuginfod {
    files: Arc<Files>,
    cached: Arc<Cached>,
    queue: SyncSender<String>,
}

impl Debuginfod {
    /// Starts the thread. `program` is samplerd, which the thread also runs as its children.
    ///
    /// # Errors
    /// If the thread cannot be started.
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

    /// The state of the debug file of a build id.
    pub fn state(&self, build_id: &str) -> FileState {
        self.files.state(build_id)
    }

    /// Debug files that are not available so far: one line for each reason.
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
        // A cached file is used at once, whatever the requests in the queue wait for.
        if let Some(outcome) = self.cached.find(build_id) {
            self.files.put(build_id.to_owned(), outcome);
        } else if self.queue.try_send(build_id.to_owned()).is_err() {
            self.files.refuse(build_id);
        }
        true
    }
}
