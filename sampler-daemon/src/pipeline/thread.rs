//! The worker's thread. The thread that started it learns when the worker has ended, and whether by
//! a panic.

use anyhow::bail;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The worker's thread.
#[derive(Debug)]
pub struct WorkerThread {
    thread: JoinHandle<anyhow::Result<()>>,
    ended: oneshot::Receiver<()>,
}

impl WorkerThread {
    pub(super) fn spawn(
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> std::io::Result<WorkerThread> {
        let (running, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("worker".into()).spawn(move || {
            // A panic drops it too.
            let _running = running;
            work()
        })?;
        Ok(WorkerThread { thread, ended })
    }

    /// Completes when the worker has ended: on request, by an error, or by a panic.
    pub async fn ended(&mut self) {
        // Nothing is ever sent: the drop of the sender completes the receiver.
        let _ = (&mut self.ended).await;
    }

    /// Waits for the end of the worker.
    ///
    /// # Errors
    /// If the worker has panicked, or could not go on.
    pub fn join(self) -> anyhow::Result<()> {
        self.thread.join().unwrap_or_else(|_| {
            bail!("the worker thread has panicked (nothing is attached any more)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerThread;

    #[tokio::test]
    async fn the_end_of_a_panicked_worker_is_noticed() {
        let mut worker = WorkerThread::spawn(|| panic!("on purpose")).unwrap();
        worker.ended().await;
        assert!(worker.join().is_err());
        let mut worker = WorkerThread::spawn(|| Ok(())).unwrap();
        worker.ended().await;
        assert!(worker.join().is_ok());
    }
}
