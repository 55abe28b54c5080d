//! Closes files that no process has mapped any more, as soon as the needed names in them are known.
//! Then a deleted file takes no room, and its file system can be unmounted.

use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::report::names::Names;
use crate::pipeline::worker::Worker;
use crate::unwind::{Image, ModuleId};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// The pause after a batch of names, as a multiple of the time that the batch took: others request
/// names, too.
const PAUSE_FACTOR: u32 = 4;
/// Files whose names are requested together. A hostile file delays the others for as long as its
/// names take.
const AT_ONCE: usize = 4;

/// Files whose names are requested.
struct NameRequest {
    modules: Vec<ModuleId>,
    at: Instant,
    is_done: oneshot::Receiver<()>,
}

/// The files to close.
pub(in crate::pipeline) struct FileCloser {
    names: Names,
    /// Modules to close, with the offsets that stacks need.
    pub(in crate::pipeline) waiting: Vec<(ModuleId, Vec<u64>)>,
    request: Option<NameRequest>,
    next: Instant,
}

impl FileCloser {
    /// No files yet; `names` will be asked for names.
    pub(in crate::pipeline) fn new(names: Names) -> FileCloser {
        FileCloser { names, waiting: Vec::new(), request: None, next: Instant::now() }
    }
}

impl Worker {
    /// Forgets unneeded stacks and modules, and closes files.
    pub(in crate::pipeline) fn collect(&mut self) {
        self.ingest.modules.close_old();
        if let Some(to_close) = self.ingest.collect() {
            self.file_closer.waiting = to_close;
        }
        if let Some(request) = &mut self.file_closer.request {
            if request.is_done.try_recv() == Err(TryRecvError::Empty) {
                return;
            }
            let (modules, took) = (std::mem::take(&mut request.modules), request.at.elapsed());
            self.file_closer.request = None;
            self.file_closer.next = Instant::now() + took * PAUSE_FACTOR;
            self.ingest.close_those_left(&modules);
        }
        if Instant::now() >= self.file_closer.next {
            self.request_names();
        }
    }

    /// Requests the names in the next files.
    fn request_names(&mut self) {
        let waiting = &mut self.file_closer.waiting;
        let files = waiting.split_off(waiting.len().saturating_sub(AT_ONCE));
        if files.is_empty() {
            return;
        }
        let modules = files.iter().map(|(id, _)| *id).collect();
        let frames = files.into_iter().flat_map(|(id, offsets)| {
            let module = self.ingest.modules.get(id);
            offsets.into_iter().map(move |offset| (Arc::clone(module), offset))
        });
        match self.file_closer.names.keep(frames.collect()) {
            Some(is_done) => {
                self.file_closer.request =
                    Some(NameRequest { modules, at: Instant::now(), is_done });
            }
            // The next collection finds the file again.
            None => self.file_closer.next = Instant::now() + Duration::from_secs(1),
        }
    }
}

impl Ingest {
    /// Closes the files of those of `modules` that no process has mapped meanwhile.
    fn close_those_left(&mut self, modules: &[ModuleId]) {
        let mapped: FxHashSet<ModuleId> =
            self.images().flat_map(Image::modules).filter(|of| modules.contains(of)).collect();
        for module in modules.iter().filter(|module| !mapped.contains(module)) {
            self.modules.close(*module);
        }
    }
}
