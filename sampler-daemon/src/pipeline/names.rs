//! The symbolizer's thread: names are looked up beside ingestion, never in its way.

use crate::symbolize::Symbolizer;
use crate::unwind::Module;
use sampler_common::profile::Line;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Batches that may wait; further askers wait in turn.
const QUEUE: usize = 16;

type Frames = Vec<(Arc<Module>, u64)>;
type Answer = Vec<Arc<[Line]>>;

/// A handle to the symbolizer; cheap to clone. Its thread ends with the last handle.
#[derive(Clone)]
pub struct Names {
    queue: mpsc::SyncSender<(Frames, oneshot::Sender<Answer>)>,
}

impl Names {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Names> {
        let (queue, batches) = mpsc::sync_channel::<(Frames, oneshot::Sender<Answer>)>(QUEUE);
        std::thread::Builder::new().name("symbolizer".into()).spawn(move || {
            let mut symbolizer = Symbolizer::default();
            while let Ok((frames, reply)) = batches.recv() {
                // An asker who has gone away needs no answer.
                let _ = reply.send(symbolizer.symbolize(&frames));
            }
        })?;
        Ok(Names { queue })
    }

    /// The lines of each frame, in order; empty if the symbolizer has stopped.
    pub async fn look_up(&self, frames: Frames) -> Answer {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.clone();
        let sent = tokio::task::spawn_blocking(move || queue.send((frames, reply))).await;
        match sent {
            Ok(Ok(())) => answer.await.unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}
