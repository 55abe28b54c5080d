//! What can be asked of the worker thread, and the handle to ask it.

use super::raw::RawProfile;
use super::source::SampleEvent;
use super::status::StatusReport;
use crate::store::{ProcessId, ProcessRecord};
use rustix::fd::OwnedFd;
use sampler_common::estimate::{Confidence, RowMoments};
use sampler_common::profile::{Exact, Kind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use tokio::sync::{broadcast, oneshot};

/// Questions that may wait for the worker at a time; further askers wait in turn.
pub(super) const QUEUE: usize = 64;

/// A profile that somebody wants.
#[derive(Clone, Debug)]
pub struct ProfileRequest {
    /// Which question.
    pub kind: Kind,
    /// Processes, all if empty.
    pub pids: Vec<u32>,
    /// Confidence of every interval.
    pub confidence: Confidence,
    /// Largest stacks only; 0 is all.
    pub top: usize,
}

/// A process with its numbers.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// Which.
    pub id: ProcessId,
    /// What is known of it.
    pub record: ProcessRecord,
    /// Exact totals.
    pub exact: Exact,
    /// Moments of its totals.
    pub totals: RowMoments,
    /// Samples in them.
    pub samples: u64,
}

/// An answer, or one line on why there is none.
pub(super) type Reply<T> = oneshot::Sender<Result<T, String>>;

pub(super) enum Command {
    Status(Reply<StatusReport>),
    Processes(Reply<Vec<ProcessReport>>),
    SetInterval { pids: Vec<u32>, interval_bytes: u64, reply: Reply<Vec<(u32, u64)>> },
    Profile(ProfileRequest, Reply<RawProfile>),
    Stop,
}

/// The worker has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the daemon is shutting down")]
pub struct Stopped;

/// A handle to the worker; cheap to clone.
#[derive(Clone)]
pub struct Profiler {
    pub(super) commands: mpsc::SyncSender<Command>,
    pub(super) wake: Arc<OwnedFd>,
    pub(super) samples: broadcast::Sender<Arc<SampleEvent>>,
    pub(super) lagged: Arc<AtomicU64>,
}

impl Profiler {
    async fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Result<T, String>, Stopped> {
        let (reply, answer) = oneshot::channel();
        let mut command = command(reply);
        loop {
            match self.commands.try_send(command) {
                Ok(()) => break,
                Err(mpsc::TrySendError::Full(back)) => {
                    command = back;
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                Err(mpsc::TrySendError::Disconnected(_)) => return Err(Stopped),
            }
        }
        self.wake();
        answer.await.map_err(|_| Stopped)
    }

    fn wake(&self) {
        // A full counter wakes the worker as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// What the daemon does.
    pub async fn status(&self) -> Result<Result<StatusReport, String>, Stopped> {
        self.ask(Command::Status).await
    }

    /// The processes that are or were profiled.
    pub async fn processes(&self) -> Result<Result<Vec<ProcessReport>, String>, Stopped> {
        self.ask(Command::Processes).await
    }

    /// Changes the interval of `pids` (all if empty); the intervals then in force.
    pub async fn set_interval(
        &self,
        pids: Vec<u32>,
        interval_bytes: u64,
    ) -> Result<Result<Vec<(u32, u64)>, String>, Stopped> {
        self.ask(|reply| Command::SetInterval { pids, interval_bytes, reply }).await
    }

    /// A profile without names; it contains every allocation that returned before the call.
    pub async fn profile(
        &self,
        request: ProfileRequest,
    ) -> Result<Result<RawProfile, String>, Stopped> {
        self.ask(|reply| Command::Profile(request, reply)).await
    }

    /// Every sample from now on; a slow receiver misses some and is told how many.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<SampleEvent>> {
        self.samples.subscribe()
    }

    /// Counts samples that a slow receiver has missed.
    pub fn count_lagged(&self, samples: u64) {
        self.lagged.fetch_add(samples, Relaxed);
    }

    /// Detaches everything and ends the worker.
    pub fn stop(&self) {
        // If the queue is full the worker is awake, and takes it a moment later.
        let _ = self.commands.send(Command::Stop);
        self.wake();
    }
}
