//! A folder of Parquet files as a destination: the tables of `sampler_common::encode::tables`.
//!
//! ```text
//! FOLDER/alloc/dt=2026-11-29/hour=13/HOST-20261129T131502.123456Z.parquet
//! FOLDER/stacks/dt=2026-11-29/HOST-20261129T131502.123456Z.parquet
//! ```
//!
//! The name of a file is that of its host and window, so that a window that is written again
//! replaces itself. A thread writes: a file system that does not answer delays nothing but this
//! destination.

mod bounds;
pub mod names;
mod place;
mod writer;

use super::REQUEST_TIMEOUT;
use super::outbox::{Attempt, Outbox};
use super::sender::{Sink, empty};
use super::window::Window;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use writer::Writer;

pub(super) use bounds::FolderContents;
pub use bounds::{Bounds, MIN_KEPT_BYTES, MIN_KEPT_FOR};

/// A window to write, and where the result goes.
type Job = (Arc<Window>, oneshot::Sender<Attempt>);

/// Checks that files can be written to a folder.
///
/// # Errors
/// One line, with the remedy.
pub fn check(path: &Path) -> Result<(), String> {
    place::Place::open(path).and_then(|place| place.check(&[])).map_err(|error| {
        let path = path.display();
        format!("--export parquet:{path}: {error} (give a folder that samplerd can write to)")
    })
}

/// Writes the windows of an outbox, without end.
pub(super) async fn write(outbox: Arc<Outbox<Window>>, path: PathBuf, bounds: Bounds) {
    // A thread that is in a system call without an end holds two windows, not more.
    let (jobs, waiting) = mpsc::sync_channel::<Job>(1);
    let writer = Writer::new(path.clone(), bounds, Arc::clone(outbox.kept()));
    let thread = std::thread::Builder::new().name("export-files".into());
    if let Err(error) = thread.spawn(move || work(writer, &waiting)) {
        tracing::error!("export to {}: start a thread: {error}", path.display());
    }
    empty(outbox, Folder(jobs)).await;
}

/// The way to the thread that writes.
struct Folder(mpsc::SyncSender<Job>);

impl Sink<Window> for Folder {
    async fn attempt(&mut self, window: &Arc<Window>) -> (Attempt, Option<Duration>) {
        let late =
            || Attempt::Failed(format!("the folder took over {} s", REQUEST_TIMEOUT.as_secs()));
        let (result, written) = oneshot::channel();
        if let Err(mpsc::TrySendError::Full(_)) = self.0.try_send((Arc::clone(window), result)) {
            return (late(), None);
        }
        let attempt = match timeout(REQUEST_TIMEOUT, written).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(_)) => Attempt::Failed("the thread that writes has ended".into()),
            Err(_) => late(),
        };
        (attempt, None)
    }
}

/// Writes window after window, until nobody sends any more.
fn work(mut writer: Writer, jobs: &mpsc::Receiver<Job>) {
    while let Ok((window, result)) = jobs.recv() {
        // The attempt may be over, but not the window: it is written again, and has the same name.
        let _ = result.send(writer.write(&window));
    }
}
