//! The worker: reads the ring, answers requests, and keeps track of the processes.

use super::AttachError;
use super::balance::Balance;
use super::clock::{Clock, monotonic_ns};
use super::command::{Command, Profiler, QUEUE, Shared};
use super::config::Config;
use super::cost::Prices;
use super::cost::forecast::Forecasts;
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
use super::records::reading::RingReading;
use super::records::stale_returns::Stale;
use super::report::names::Names;
use super::source::SampleEvent;
use super::thread::WorkerThread;
use crate::bpf::{Attacher, Kernel, ProbeEngine};
use crate::inspect::discoverer::Discoverer;
use crate::inspect::process::Process;
use crate::links::LinkTable;
use anyhow::Context as _;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
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
    pub(super) balance: Balance,
    /// Lost samples when losses were last read, for the time slots.
    pub(super) observed_losses: u64,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) shared: Arc<Shared>,
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
    pub(super) reading: RingReading,
    pub(super) file_closer: FileCloser,
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
    let shared = Shared::new().context("make an eventfd")?;
    let profiler =
        Profiler { commands: sender, samples: samples.clone(), shared: Arc::clone(&shared) };
    let excluded = Excluded::new(config.exclude.clone());
    let discoverer = Discoverer::new(config.settings.uses_usdt(), config.allocators)
        .samplers_only(config.samplers_only)
        .executables(config.executables);
    let pids = processes.iter().map(|process| process.pid).collect();
    let forecasts = Forecasts::begin(&config, pids).context("start a thread")?;
    let start = |injecting| Injections::start(injecting, Arc::clone(&shared));
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
        balance: Balance::new(),
        observed_losses: 0,
        commands,
        shared,
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
        reading: RingReading::default(),
        file_closer: FileCloser::new(names),
    };
    worker.ingest.stack_cache.is_on = worker.config.settings.stack_cache;
    worker.ingest.python.native = worker.config.native;
    worker.ingest.window_samples.is_on = worker.config.windows.is_some();
    worker.kernel.targets.exclude(std::process::id())?;
    worker.refuse_diverted()?;
    for file in files {
        worker.probe_file(file)?;
    }
    let mut rest = processes.len();
    for process in processes {
        rest -= 1;
        if worker.config.is_tree() && worker.exclude_if_listed(process.pid) {
            continue;
        }
        match worker.attach(process) {
            // The others are profiled.
            Err(error @ AttachError::Exited(_))
                if rest > 0 || !worker.ingest.slots().is_empty() =>
            {
                tracing::warn!("{error}");
            }
            attached => attached?,
        }
    }
    if worker.config.is_open() {
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
