//! The worker's commands, and the handle that sends them.

use super::heartbeat::Heartbeat;
use super::latency::Answers;
use super::report::history::{HistoryRequest, HistoryWindow};
use super::report::leaks::{LeaksRequest, RawLeaks};
use super::report::lifetimes::{LifetimesRequest, RawLifetimes};
use super::report::listing::{ListRequest, Listing, ProcessSums};
use super::report::metrics::MetricsReport;
use super::report::raw::RawProfile;
use super::report::scope::Scope;
use super::report::status::StatusReport;
use super::source::SampleEvent;
use crate::store::mapped::ProcessTotals;
use crate::store::{ProcessId, ProcessRecord, Sampling, SamplingRecord, Selector};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sampler_common::counters::Outcome;
use sampler_common::counting::Count;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::pressure::Raised;
use sampler_common::profile::Kind;
use sampler_common::sampling::Strategy;
use sampler_common::source::SampleSources;
use sampler_common::units;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Instant, SystemTime};
use tokio::sync::{broadcast, oneshot};

/// Commands that may wait for the worker; further callers retry until there is room.
pub(super) const QUEUE: usize = 64;

/// A request for a profile.
#[derive(Clone, Debug)]
pub struct ProfileRequest {
    /// Which kind of profile.
    pub kind: Kind,
    /// Which processes.
    pub selector: Selector,
    /// Confidence of every interval.
    pub confidence: Confidence,
    /// The estimator; `None`: weighted, and for processes sampled by stride the sum of their
    /// points.
    pub estimator: Option<Estimator>,
    /// Number of largest stacks; 0 is all.
    pub top: usize,
    /// Number of functions, summed over all stacks; 0 is none.
    pub functions: usize,
    /// Which part of the recorded data.
    pub scope: Scope,
}

/// A change to how a process is sampled; `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingChange {
    /// Mean bytes between samples. A fixed interval ends a target of samples per second.
    pub interval_bytes: Option<u64>,
    /// The strategy. A new strategy ends `one_in`.
    pub strategy: Option<Strategy>,
    /// Bernoulli: one sample in so many allocations.
    pub one_in: Option<u64>,
    /// Target number of samples per second.
    pub samples_per_second: Option<f64>,
}

impl SamplingChange {
    /// The sampling `to` with this change.
    pub fn apply(&self, to: &Sampling) -> Sampling {
        let rate_stays = self.interval_bytes.is_none() && self.one_in.is_none();
        let scheme_stays = self.strategy.is_none()
            && self.interval_bytes.is_none()
            && self.samples_per_second.is_none();
        Sampling {
            strategy: self.strategy.unwrap_or(to.strategy),
            interval_bytes: self.interval_bytes.unwrap_or(to.interval_bytes),
            one_in: self.one_in.or(to.one_in.filter(|_| scheme_stays)),
            samples_per_second: self
                .samples_per_second
                .or(to.samples_per_second.filter(|_| rate_stays)),
        }
    }
}

/// How a process is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingReport {
    /// Process id.
    pub pid: u32,
    /// What was asked for.
    pub requested: Sampling,
    /// Mean bytes between samples in force.
    pub interval_bytes: u64,
    /// Bernoulli: one sample in this many allocations, once known.
    pub one_in: Option<f64>,
    /// Whether the process samples some allocations by itself, whatever is asked for.
    pub samples_itself: bool,
    /// Whether the process samples all its allocations by itself.
    pub is_self_sampled: bool,
    /// Back-pressure.
    pub pressure: PressureReport,
    /// Whether our own library samples, whose rate follows ours.
    pub preloaded: bool,
    /// Where the process's samples come from.
    pub sources: SampleSources,
}

/// How far back-pressure has raised the interval of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureReport {
    /// Raised by the limits of samples per second.
    pub raised: Raised,
    /// When the interval last rose from its requested value.
    pub since: Option<SystemTime>,
    /// How often the kernel side has raised the interval of a size class because the ring filled.
    pub ring_raises: u64,
    /// The largest factor of these raises.
    pub ring_factor: f64,
    /// Whether the kernel side raises an interval now.
    pub is_raised_by_ring: bool,
}

impl PressureReport {
    fn new(record: &SamplingRecord) -> PressureReport {
        PressureReport {
            raised: record.raised_for_limits(),
            since: record.raised_since,
            ring_raises: record.ring_raises,
            ring_factor: record.ring_pressure.factor.max(1.0),
            is_raised_by_ring: record.is_raised_by_ring,
        }
    }
}

impl SamplingReport {
    /// The report of a process.
    pub fn new(process: &ProcessRecord) -> SamplingReport {
        let (pid, record) = (process.pid, &*process.sampling);
        let design = record.designs[0];
        let is_bernoulli = design.strategy() == Some(Strategy::Bernoulli);
        SamplingReport {
            pid,
            requested: record.requested,
            interval_bytes: units::whole_interval(record.shown_interval()),
            one_in: is_bernoulli.then(|| design.interval()),
            samples_itself: record.samples_itself,
            is_self_sampled: record.is_self_sampled,
            pressure: PressureReport::new(record),
            preloaded: record.library_bytes.0 > 0.0,
            sources: process.sources(),
        }
    }
}

/// A process with its numbers.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// Which process.
    pub id: ProcessId,
    /// The process's record.
    pub record: ProcessRecord,
    /// The process's numbers.
    pub sums: ProcessSums,
    /// Calls of freeing functions; `None` if they are not probed.
    pub free_calls: Option<Count>,
    /// Bounds that the process has hit, with how often.
    pub bounds: Vec<(Outcome, u64)>,
    /// What the process has mapped; `None` if mappings are not followed.
    pub mappings: Option<ProcessTotals>,
}

/// An answer, or one line with the reason why there is none.
pub(super) type Reply<T> = oneshot::Sender<Result<T, String>>;

pub(super) enum Command {
    Status(Reply<StatusReport>),
    Processes(ListRequest, Reply<Listing>),
    SetSampling {
        selector: Selector,
        change: SamplingChange,
        /// Only processes of this user may be changed.
        owner: Option<u32>,
        reply: Reply<Vec<SamplingReport>>,
    },
    Profile(ProfileRequest, Reply<RawProfile>),
    Lifetimes(LifetimesRequest, Reply<RawLifetimes>),
    History(HistoryRequest, Reply<Vec<HistoryWindow>>),
    Leaks(LeaksRequest, Reply<RawLeaks>),
    Metrics(Reply<MetricsReport>),
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
    pub(super) samples: broadcast::Sender<Arc<SampleEvent>>,
    pub(super) shared: Arc<Shared>,
}

/// What the worker and its handles share.
pub(super) struct Shared {
    /// The eventfd that wakes the worker.
    wake: OwnedFd,
    /// Samples that slow `StreamSamples` clients have missed.
    pub(super) lagged: AtomicU64,
    /// How long answers took.
    pub(super) answers: Answers,
    pub(super) heartbeat: Heartbeat,
}

impl Shared {
    /// # Errors
    /// If no eventfd can be made.
    pub(super) fn new() -> Result<Arc<Shared>, Errno> {
        Ok(Arc::new(Shared {
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            lagged: AtomicU64::new(0),
            answers: Answers::default(),
            heartbeat: Heartbeat::default(),
        }))
    }

    /// Wakes the worker.
    pub(super) fn wake(&self) {
        // A full counter wakes the worker as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The descriptor that is readable after [`Shared::wake`].
    pub(super) fn woken(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Clears the wake-ups until now.
    pub(super) fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}

impl Profiler {
    /// The handle of a stopped worker: every request fails with [`Stopped`].
    #[cfg(test)]
    pub(crate) fn stopped() -> Profiler {
        Profiler {
            commands: mpsc::sync_channel(0).0,
            samples: broadcast::channel(1).0,
            shared: Shared::new().unwrap(),
        }
    }

    /// Whether the worker's event loop still runs.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.shared.heartbeat
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: &'static str,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Result<T, String>, Stopped> {
        let start = Instant::now();
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
        self.shared.wake();
        let answer = answer.await.map_err(|_| Stopped)?;
        self.shared.answers.add(question, start.elapsed());
        Ok(answer)
    }

    /// The state of the daemon.
    pub async fn status(&self) -> Result<Result<StatusReport, String>, Stopped> {
        let report = match self.ask("status", Command::Status).await? {
            Ok(report) => report,
            Err(error) => return Ok(Err(error)),
        };
        let read = tokio::task::spawn_blocking(move || report.read_processor());
        read.await.map(Ok).map_err(|_| Stopped)
    }

    /// Counts of the daemon and of every process, at one moment.
    pub async fn metrics(&self) -> Result<Result<MetricsReport, String>, Stopped> {
        let report = match self.ask("metrics", Command::Metrics).await? {
            Ok(report) => report,
            Err(error) => return Ok(Err(error)),
        };
        let read = tokio::task::spawn_blocking(move || report.read_processor());
        read.await.map(Ok).map_err(|_| Stopped)
    }

    /// The processes that are or were profiled.
    pub async fn processes(
        &self,
        request: ListRequest,
    ) -> Result<Result<Listing, String>, Stopped> {
        let listing =
            match self.ask("processes", |reply| Command::Processes(request, reply)).await? {
                Ok(listing) => listing,
                Err(error) => return Ok(Err(error)),
            };
        let with_memory = tokio::task::spawn_blocking(move || {
            let mut listing = listing;
            listing.read_memory();
            listing
        });
        with_memory.await.map(Ok).map_err(|_| Stopped)
    }

    /// Changes how the running processes that `selector` chooses are sampled. Returns what is then
    /// in force.
    /// With an `owner`, a user id, a selector that chooses processes of others is refused.
    pub async fn set_sampling(
        &self,
        selector: Selector,
        change: SamplingChange,
        owner: Option<u32>,
    ) -> Result<Result<Vec<SamplingReport>, String>, Stopped> {
        let command = |reply| Command::SetSampling { selector, change, owner, reply };
        self.ask("set_sampling", command).await
    }

    /// A profile without names; it contains every allocation that returned before the call.
    pub async fn profile(
        &self,
        request: ProfileRequest,
    ) -> Result<Result<RawProfile, String>, Stopped> {
        self.ask("profile", |reply| Command::Profile(request, reply)).await
    }

    /// Lifetimes without names.
    pub async fn lifetimes(
        &self,
        request: LifetimesRequest,
    ) -> Result<Result<RawLifetimes, String>, Stopped> {
        self.ask("lifetimes", |reply| Command::Lifetimes(request, reply)).await
    }

    /// What was allocated when, in at most about sixty windows.
    pub async fn history(
        &self,
        request: HistoryRequest,
    ) -> Result<Result<Vec<HistoryWindow>, String>, Stopped> {
        self.ask("history", |reply| Command::History(request, reply)).await
    }

    /// Growth without names.
    pub async fn leaks(&self, request: LeaksRequest) -> Result<Result<RawLeaks, String>, Stopped> {
        self.ask("leaks", |reply| Command::Leaks(request, reply)).await
    }

    /// All samples from now on. A slow receiver misses some and learns how many.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<SampleEvent>> {
        self.samples.subscribe()
    }

    /// Counts samples that a slow receiver has missed.
    pub fn count_lagged(&self, samples: u64) {
        self.shared.lagged.fetch_add(samples, Relaxed);
    }

    /// Detaches everything and ends the worker.
    pub fn stop(&self) {
        // If the queue is full, the worker is awake and takes the command a moment later.
        let _ = self.commands.send(Command::Stop);
        self.shared.wake();
    }
}
