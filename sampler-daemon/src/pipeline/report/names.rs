//! The symbolizer's thread, which looks up names without delaying ingestion.

use super::notes::missing_names;
use crate::debuginfod::Debuginfod;
use crate::parser::{Counts, FILE_TIME, Parser};
use crate::symbolize::{Symbolizer, unnamed_code};
use crate::unwind::{GeneratedCode, Module};
use sampler_common::note::Note;
use sampler_common::profile::Line;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum number of waiting batches. Further callers block.
const MAX_QUEUED_BATCHES: usize = 16;

/// After this time without a request, the data of files is dropped. Names are kept.
const REST_AFTER: Duration = Duration::from_secs(30);

type Frames = Vec<(Arc<Module>, u64)>;

/// A task of the thread.
enum Batch {
    /// Look up the names of frames.
    LookUp(Frames, oneshot::Sender<Named>),
    /// Remember the names of frames of a file that will be closed, and report the end of this task.
    Keep(Frames, oneshot::Sender<()>),
}

/// Names of frames.
#[derive(Debug, Default)]
pub struct Named {
    /// The lines of each frame, in order; empty if the symbolizer has stopped.
    pub lines: Vec<Arc<[Line]>>,
    /// Files of which something could not be read.
    pub unread: Vec<String>,
    /// Notes about missing names, and about their requests to debuginfod.
    pub notes: Vec<Note>,
    /// Generated code of which a frame has no name.
    pub unnamed_code: Vec<Arc<GeneratedCode>>,
}

/// A handle to the symbolizer; cheap to clone. Its thread ends with the last handle.
#[derive(Clone)]
pub struct Names {
    queue: mpsc::SyncSender<Batch>,
    counts: Arc<Counts>,
    debuginfod: Option<Debuginfod>,
}

impl Names {
    /// Starts the thread. The thread reads files through a parser, which runs samplerd's `program`.
    /// Missing debug files come from `debuginfod`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(program: &Path, debuginfod: Option<Debuginfod>) -> std::io::Result<Names> {
        let (queue, batches) = mpsc::sync_channel::<Batch>(MAX_QUEUED_BATCHES);
        let parser = Parser::of(program, Box::new(debuginfod.clone()));
        let counts = parser.counts();
        let servers = debuginfod.clone();
        std::thread::Builder::new().name("symbolizer".into()).spawn(move || {
            let mut symbolizer = Symbolizer::new(parser, FILE_TIME);
            loop {
                let (frames, reply) = match batches.recv_timeout(REST_AFTER) {
                    Ok(Batch::LookUp(frames, reply)) => (frames, reply),
                    Ok(Batch::Keep(frames, done)) => {
                        let keep = AssertUnwindSafe(|| symbolizer.keep(&frames));
                        let _ = panic::catch_unwind(keep);
                        // The file is closed when its last reference is dropped.
                        drop(frames);
                        let _ = done.send(());
                        continue;
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        symbolizer.rest();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                // The vdso and the names of generated code are read here.
                let named = panic::catch_unwind(AssertUnwindSafe(|| {
                    let lines = symbolizer.symbolize(&frames);
                    let unread = symbolizer.unread(&frames);
                    let notes = missing_names::notes(&frames, &lines, servers.as_ref());
                    let unnamed_code = unnamed_code(&frames, &lines);
                    Named { lines, unread, notes, unnamed_code }
                }));
                // A client that has gone away needs no answer.
                let _ = reply.send(named.unwrap_or_default());
            }
        })?;
        Ok(Names { queue, counts, debuginfod })
    }

    /// Looks up the names of each frame.
    pub async fn look_up(&self, frames: Frames) -> Named {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.clone();
        let sent =
            tokio::task::spawn_blocking(move || queue.send(Batch::LookUp(frames, reply))).await;
        match sent {
            Ok(Ok(())) => answer.await.unwrap_or_default(),
            _ => Named::default(),
        }
    }

    /// Remembers the names of frames of a file that will be closed. The receiver reports when the
    /// names are remembered. `None`: the queue is full.
    pub(in crate::pipeline) fn keep(&self, frames: Frames) -> Option<oneshot::Receiver<()>> {
        let (done, is_done) = oneshot::channel();
        self.queue.try_send(Batch::Keep(frames, done)).ok()?;
        Some(is_done)
    }

    /// What could not be read so far: one line for each reason.
    pub fn limits(&self) -> Vec<String> {
        let of_debuginfod = self.debuginfod.iter().flat_map(Debuginfod::limits);
        self.counts.limits().into_iter().chain(of_debuginfod).collect()
    }
}
