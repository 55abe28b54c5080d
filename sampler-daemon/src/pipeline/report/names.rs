//! The symbolizer's thread: names are looked up beside ingestion, never in its way.

use crate::symbolize::Symbolizer;
use crate::unwind::Module;
use sampler_common::profile::Line;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Batches that may wait; further askers wait in turn.
const QUEUE: usize = 16;

/// What `task` makes of it; nothing where that panics, and who comes next begins anew. The files that names are read from are anybody's, and what is wrong with one must not take the names of all.
fn attempt<S: Default, T: Default>(state: &mut S, task: impl FnOnce(&mut S) -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(|| task(state))).unwrap_or_else(|_| {
        tracing::error!("looking up names failed: some functions are told by their addresses");
        *state = S::default();
        T::default()
    })
}

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
                let answer = attempt(&mut symbolizer, |symbolizer| symbolizer.symbolize(&frames));
                // An asker who has gone away needs no answer.
                let _ = reply.send(answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_begun_anew() {
        let mut state = vec![1];
        assert_eq!(attempt(&mut state, |state| state.len()), 1);
        let failed: usize = attempt(&mut state, |_| panic!("a file that nobody expected"));
        assert_eq!((failed, state.len()), (0, 0));
        assert_eq!(
            attempt(&mut state, |state| {
                state.push(2);
                7
            }),
            7
        );
    }
}
