//! Closes files that no process has mapped any more, as soon as it is known what is called how in them: a deleted file takes no room, and its file system
//! can be unmounted.

use super::report::names::Names;
use super::worker::Worker;
use crate::unwind::{Image, ModuleId};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// So many times as long as the names of a file took, those of the next one wait: others ask, too.
const PAUSE_FACTOR: u32 = 4;

/// A file whose names are being asked.
struct Asked {
    module: ModuleId,
    at: Instant,
    is_done: oneshot::Receiver<()>,
}

/// The files to close.
pub(super) struct Closing {
    names: Names,
    /// With the offsets that stacks need.
    pub(super) waiting: Vec<(ModuleId, Vec<u64>)>,
    asked: Option<Asked>,
    next: Instant,
}

impl Closing {
    /// None yet; `names` will be asked.
    pub(super) fn new(names: Names) -> Closing {
        Closing { names, waiting: Vec::new(), asked: None, next: Instant::now() }
    }
}

impl Worker {
    /// Forgets what is not needed, and closes files.
    pub(super) fn collect(&mut self) {
        self.ingest.modules.close_old();
        if let Some(to_close) = self.ingest.collect() {
            self.closing.waiting = to_close;
        }
        if let Some(asked) = &mut self.closing.asked {
            if asked.is_done.try_recv() == Err(TryRecvError::Empty) {
                return;
            }
            let (module, took) = (asked.module, asked.at.elapsed());
            self.closing.asked = None;
            self.closing.next = Instant::now() + took * PAUSE_FACTOR;
            if !self.is_mapped(module) {
                self.ingest.modules.close(module);
            }
        }
        if Instant::now() >= self.closing.next {
            self.ask_names();
        }
    }

    /// Whether a process has a module mapped now.
    fn is_mapped(&self, module: ModuleId) -> bool {
        self.ingest.images().flat_map(Image::modules).any(|of| of == module)
    }

    /// Asks what is called how in the next file.
    fn ask_names(&mut self) {
        let Some((id, offsets)) = self.closing.waiting.pop() else { return };
        let module = self.ingest.modules.get(id);
        let frames = offsets.into_iter().map(|offset| (module.clone(), offset)).collect();
        match self.closing.names.keep(frames) {
            Some(is_done) => {
                self.closing.asked = Some(Asked { module: id, at: Instant::now(), is_done });
            }
            // The next collection finds it again.
            None => self.closing.next = Instant::now() + Duration::from_secs(1),
        }
    }
}
