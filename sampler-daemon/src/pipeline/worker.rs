//! The worker: reads the ring, answers requests, and keeps track of the processes.

use super::clock::{Clock, monotonic_ns};
use super::command::{Command, Profiler, QUEUE};
use super::config::Config;
use super::cost::Prices;
use super::cost::forecast::Forecasts;
use super::heartbeat::Heartbeat;
use super::latency::{Answers, Histogram};
use super::library::injections::Injections;
use super::processes::coverage::Coverage;
use super::processes::exclude::Excluded;
use super::processes::process_events::ProcessEventQueue;
use super::processes::refused::Refused;
use super::processes::survey::Survey;
use super::processes::tree::Tree;
use super::rates::pressure::BackPressure;
use super::records::file_closer::FileCloser;
use super::records::ingest::Ingest;
use super::records::stale_returns::Stale;
use super::report::names::Names;
use super::source::SampleEvent;
use super::thread::WorkerThread;
use crate::bpf::{Attacher, Kernel, ProbeEngine};
use crate::inspect::discoverer::Discoverer;
use crate::inspect::process::Process;
use crate::links::LinkTable;
use anyhow::Context as _;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::broadcast;

/// Samples kept for a slow `StreamSamples` client.
const STREAM_BACKLOG: usize = 16 * 1024;

pub(super) struct Worker {
    pub(super) config: Config,
    pub(super) kernel: Kernel,
    pub(super) ingest: Ingest,
    pub(super) links: LinkTable,
    pub(super) survey: Survey,
    pub(super) stale: Stale,
    pub(super) discoverer: Discoverer,
    /// Outcomes of slots that have become vacant.
    pub(super) retired: crate::bpf::maps::totals::SlotTotals,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    /// CPU time of the start without measuring prices, nanoseconds. The kernel's verifier takes
    /// most of it.
    pub(super) starting_ns: u64,
    /// When the live profile first became a lower bound.
    pub(super) live_incomplete: Option<SystemTime>,
    /// Lost samples when losses were last read, for the time slots.
    pub(super) observed_losses: u64,
    /// Losses that the last reconciliation has repaired.
    pub(super) reconciled_losses: u64,
    pub(super) last_reconciled: Instant,
    /// Samples that slow `StreamSamples` clients have missed.
    pub(super) lagged: Arc<AtomicU64>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) wake: Arc<OwnedFd>,
    pub(super) process_events: ProcessEventQueue,
    pub(super) coverage: Coverage,
    pub(super) excluded: Excluded,
    pub(super) refused: Refused,
    /// When the daemon last checked whether there is anything to learn.
    pub(super) learned: Instant,
    pub(super) tree: Tree,
    pub(super) prices: Prices,
    pub(super) forecasts: Forecasts,
    /// Injections of newly appeared processes, with `--inject`.
    pub(super) injections: Option<Injections>,
    /// Slots of processes that may end at any moment. If there are many processes, only these are
    /// watched.
    pub(super) leaving: Vec<u32>,
    pub(super) pressure: BackPressure,
    /// Delay from an allocation to its sample in the store.
    pub(super) delays: Histogram,
    /// How full the ring was at each reading.
    pub(super) ring_fill: Histogram,
    /// Bytes that waited in the ring at the last reading.
    pub(super) ring_waiting_bytes: u64,
    pub(super) answers: Arc<Answers>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) file_closer: FileCloser,
    /// Whether the guardian has ended, and every link with it.
    pub(super) is_unguarded: bool,
}

/// Loads the program, attaches it to `processes` and to the allocators in `files`, and starts the
/// worker.
/// The worker asks `names` before it closes a file.
///
/// # Errors
///
/// If a step fails. Then nothing stays attached.
pub fn start(
    config: Config,
    attacher: Attacher,
    processes: Vec<Process>,
    files: &[PathBuf],
    names: Names,
) -> anyhow::Result<(Profiler, WorkerThread)> {
    config.sampling.check().map_err(anyhow::Error::msg)?;
    let (samples, _) = broadcast::channel::<Arc<SampleEvent>>(STREAM_BACKLOG);
    let (sender, commands) = mpsc::sync_channel(QUEUE);
    let wake = Arc::new(
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("make an eventfd")?,
    );
    let lagged = Arc::new(AtomicU64::new(0));
    let profiler = Profiler {
        commands: sender,
        wake: Arc::clone(&wake),
        samples: samples.clone(),
        lagged: Arc::clone(&lagged),
        answers: Arc::default(),
        heartbeat: Arc::default(),
    };
    let (answers, heartbeat) = (Arc::clone(&profiler.answers), Arc::clone(&profiler.heartbeat));
    let excluded = Excluded::new(config.exclude.clone());
    let discoverer = Discoverer::new(config.settings.uses_usdt(), config.allocators)
        .samplers_only(config.samplers_only)
        .executables(config.executables);
    let pids = processes.iter().map(|process| process.pid).collect();
    let forecasts = Forecasts::begin(&config, pids).context("start a thread")?;
    let start = |injecting| Injections::start(injecting, Arc::clone(&wake));
    let injections = config.injecting.clone().map(start).transpose().context("start a thread")?;
    let mut kernel = Kernel::load(&config.settings, attacher)?;
    let prices = Prices::measure(&mut kernel, &config);
    let pressure = BackPressure::new(config.limits);
    let mut worker = Worker {
        kernel,
        ingest: Ingest::new(samples, config.sampling, monotonic_ns(), config.samplers_only),
        links: LinkTable::new(config.settings),
        config,
        survey: Survey::default(),
        stale: Stale::default(),
        discoverer,
        retired: Default::default(),
        clock: Clock::default(),
        started: Instant::now(),
        starting_ns: 0,
        live_incomplete: None,
        observed_losses: 0,
        reconciled_losses: 0,
        last_reconciled: Instant::now(),
        lagged,
        commands,
        wake,
        process_events: ProcessEventQueue::default(),
        coverage: Coverage::default(),
        excluded,
        refused: Refused::default(),
        learned: Instant::now(),
        tree: Tree::default(),
        prices,
        forecasts,
        injections,
        leaving: Vec::new(),
        pressure,
        delays: Histogram::of_times(),
        ring_fill: Histogram::of_shares(),
        ring_waiting_bytes: 0,
        answers,
        heartbeat,
        file_closer: FileCloser::new(names),
        is_unguarded: false,
    };
    worker.ingest.stack_cache.is_on = worker.config.settings.stack_cache;
    worker.ingest.python.native = worker.config.native;
    worker.ingest.window_samples.is_on = worker.config.windows.is_some();
    worker.kernel.targets.exclude(std::process::id())?;
    worker.refuse_diverted()?;
    for file in files {
        worker.probe_file(file)?;
    }
    for process in processes {
        if worker.is_tree() && worker.exclude_if_listed(process.pid) {
            continue;
        }
        worker.attach(process)?;
    }
    if worker.is_open() {
        worker.process_events = ProcessEventQueue::open();
        worker.exclude_running();
        worker.follow_descendants()?;
        worker.add_free_slots()?;
        worker.survey_for(Duration::MAX);
    }
    if let Some(gates) = &mut worker.kernel.windows {
        gates.begin()?;
    }
    worker.begin_forecasts();
    worker.starting_ns = worker.used_ns();
    let thread = WorkerThread::spawn(move || worker.run()).context("start the worker thread")?;
    Ok((profiler, thread))
}

impl Worker {
    pub(super) fn engine(&self) -> ProbeEngine {
        self.kernel.engine()
    }
}
