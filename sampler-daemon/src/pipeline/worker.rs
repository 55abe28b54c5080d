//! The worker: reads the ring, answers questions, looks after the processes.

use super::attach::Attached;
use super::clock::{Clock, monotonic_ns};
use super::command::{Command, Profiler, QUEUE};
use super::config::{Config, Reach};
use super::cost::Prices;
use super::coverage::Coverage;
use super::exclude::Excluded;
use super::happenings::Happenings;
use super::ingest::{Event, Ingest};
use super::latency::{Answers, Histogram};
use super::pressure::BackPressure;
use super::refused::Refused;
use super::source::SampleEvent;
use super::stale::Stale;
use super::survey::Survey;
use super::thread::WorkerThread;
use super::tree::Tree;
use super::windows::Cycle;
use crate::bpf::{Attacher, Kernel, ProbeEngine};
use crate::links::LinkTable;
use crate::target::discoverer::Discoverer;
use crate::target::process::Process;
use anyhow::{Context as _, bail};
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::broadcast;

/// Records read between two looks at commands and processes.
pub(super) const BATCH: usize = 1024;
/// Place of the eventfd among what is waited for.
const WAKE: usize = 1;
/// The same of what hangs up when the guardian ends.
const GUARDIAN: usize = 2;
/// How long records may wait in the ring when few arrive (many wake the worker).
const PERIOD: Duration = Duration::from_millis(100);
/// The same where processes come and go: what is known of a short one must be read soon.
const OPEN_PERIOD: Duration = Duration::from_millis(20);
/// Said when nothing can be seen any more.
const NO_GUARDIAN: &str = "the probe guardian has ended, and every probe with it: nothing is profiled any more (start samplerd again)";
/// Samples kept for a slow `StreamSamples` client.
const STREAM_BACKLOG: usize = 16 * 1024;

pub(super) struct Worker {
    pub(super) config: Config,
    pub(super) kernel: Kernel,
    pub(super) ingest: Ingest,
    pub(super) attached: FxHashMap<u32, Attached>,
    pub(super) links: LinkTable,
    pub(super) survey: Survey,
    pub(super) stale: Stale,
    pub(super) discoverer: Discoverer,
    /// Outcomes of slots that are vacant again.
    pub(super) retired: crate::bpf::totals::SlotTotals,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    /// CPU time until it was ready, nanoseconds, but for measuring prices: the kernel's look at the programs takes most of it.
    pub(super) starting_ns: u64,
    /// When the live profile first became a lower bound.
    pub(super) live_incomplete: Option<SystemTime>,
    /// Samples that were lost when the lost ones were last looked at, for the time slots.
    pub(super) observed_losses: u64,
    /// Losses that the last reconciliation has repaired.
    pub(super) reconciled_losses: u64,
    pub(super) last_reconciled: Instant,
    /// Samples that slow `StreamSamples` clients have missed.
    pub(super) lagged: Arc<AtomicU64>,
    pub(super) commands: mpsc::Receiver<Command>,
    wake: Arc<OwnedFd>,
    pub(super) happenings: Happenings,
    pub(super) coverage: Coverage,
    pub(super) excluded: Excluded,
    pub(super) refused: Refused,
    /// When it was last looked whether there is anything to learn.
    pub(super) learned: Instant,
    pub(super) tree: Tree,
    pub(super) prices: Prices,
    /// Slots of processes that may end any moment: where there are many, only these are watched.
    pub(super) leaving: Vec<u32>,
    pub(super) pressure: BackPressure,
    /// Windows of processes, by slot.
    pub(super) cycles: FxHashMap<u32, Cycle>,
    /// From an allocation to its sample in the store.
    pub(super) delays: Histogram,
    /// How full the ring was when it was looked at.
    pub(super) ring_fill: Histogram,
    /// Bytes that waited in it at the last of these times.
    pub(super) ring_waiting_bytes: u64,
    pub(super) answers: Arc<Answers>,
    /// The guardian has ended, and every link with it.
    is_unguarded: bool,
}

/// Loads the program, attaches it to `processes` and to the allocators in `files`, and starts the worker. On an error nothing is left.
pub fn start(
    config: Config,
    attacher: Attacher,
    processes: Vec<Process>,
    files: &[PathBuf],
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
    };
    let answers = Arc::clone(&profiler.answers);
    let excluded = Excluded::new(config.exclude.clone());
    let discoverer = Discoverer::new(config.settings.uses_usdt(), config.allocators)
        .samplers_only(config.samplers_only)
        .executables(config.executables);
    let mut kernel = Kernel::load(&config.settings, attacher)?;
    let prices = Prices::measure(&mut kernel, &config);
    let pressure = BackPressure::new(config.limits);
    let mut worker = Worker {
        kernel,
        ingest: Ingest::new(samples, config.sampling, monotonic_ns(), config.samplers_only),
        links: LinkTable::new(config.settings),
        config,
        attached: FxHashMap::default(),
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
        happenings: Happenings::default(),
        coverage: Coverage::default(),
        excluded,
        refused: Refused::default(),
        learned: Instant::now(),
        tree: Tree::default(),
        prices,
        leaving: Vec::new(),
        pressure,
        cycles: FxHashMap::default(),
        delays: Histogram::of_times(),
        ring_fill: Histogram::of_shares(),
        ring_waiting_bytes: 0,
        answers,
        is_unguarded: false,
    };
    worker.ingest.known.is_on = worker.config.settings.known_stacks;
    worker.ingest.window_samples.is_on = worker.config.windows.is_some();
    worker.close_costly_links();
    worker.kernel.targets.exclude(std::process::id())?;
    worker.refuse_diverted()?;
    for file in files {
        worker.probe_file(file)?;
    }
    for process in processes {
        if worker.is_tree() && worker.is_spared(process.pid) {
            continue;
        }
        worker.attach(process)?;
    }
    if worker.is_open() {
        worker.happenings = Happenings::open();
        worker.exclude_running();
        worker.follow_descendants()?;
        worker.offer_slots()?;
        worker.survey_for(Duration::MAX);
    }
    if let Some(gates) = &mut worker.kernel.windows {
        gates.begin()?;
    }
    worker.starting_ns = worker.used_ns();
    let thread = WorkerThread::spawn(move || worker.run()).context("start the worker thread")?;
    Ok((profiler, thread))
}

/// Lets this thread run as soon as there is something to do: while it waits for a CPU, programs go on paying for probes that are to go.
fn hurry() {
    const FIRST: i32 = -15;
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), FIRST) {
        tracing::warn!("run ahead of others: {error}");
    }
}

impl Worker {
    pub(super) fn engine(&self) -> ProbeEngine {
        self.kernel.engine()
    }

    fn run(mut self) -> anyhow::Result<()> {
        if self.config.windows.is_some() {
            hurry();
        }
        let mut are_more = false;
        loop {
            let exited = self.wait(are_more);
            if self.is_unguarded {
                self.shut_down();
                bail!("{NO_GUARDIAN}");
            }
            self.turn_windows();
            self.look_at_ring();
            self.read(BATCH);
            self.press_back();
            self.handle_events();
            self.detach_gone(&exited);
            are_more = match self.answer_some() {
                ControlFlow::Continue(are_more) => are_more,
                ControlFlow::Break(()) => {
                    self.shut_down();
                    return Ok(());
                }
            };
            self.look_after_processes();
            self.survey();
            self.look_at_expected();
            self.balance();
            self.learn();
            self.look_at_prices();
            self.kernel.flush_log();
        }
    }

    /// Waits for records, questions, exits or the period's end, or only looks if there are questions left; slots whose process has exited.
    fn wait(&mut self, are_questions: bool) -> Vec<u32> {
        let mut descriptors = vec![
            PollFd::new(&self.kernel.ring, PollFlags::IN),
            PollFd::new(&*self.wake, PollFlags::IN),
        ];
        // Nothing is read from it: it only hangs up.
        let guardian = self.kernel.attacher().guardian();
        descriptors.extend(guardian.map(|it| PollFd::from_borrowed_fd(it, PollFlags::empty())));
        let watched = self.watched();
        descriptors.extend(watched.iter().filter_map(|slot| {
            let pidfd = self.attached.get(slot)?.process.as_ref()?.pidfd.as_fd();
            Some(PollFd::from_borrowed_fd(pidfd, PollFlags::IN))
        }));
        let mut period = if self.is_open() { OPEN_PERIOD } else { PERIOD };
        match self.happenings.pause() {
            Some(pause) => period = pause.min(period),
            None => {
                let events = self.happenings.descriptors();
                descriptors.extend(events.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
            }
        }
        if are_questions {
            period = Duration::ZERO;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: period.as_nanos() as i64 };
        // An interrupted wait is a short one.
        let _ = poll(&mut descriptors, Some(&timeout));
        if !descriptors[WAKE].revents().is_empty() {
            let mut counter = [0u8; 8];
            let _ = rustix::io::read(&*self.wake, &mut counter);
        }
        self.is_unguarded = guardian.is_some() && !descriptors[GUARDIAN].revents().is_empty();
        self.gone(&watched)
    }

    /// Slots of those that may end now; of many processes only those whose first thread is going.
    fn watched(&self) -> Vec<u32> {
        match self.config.reach {
            Reach::Listed => self.slots(),
            _ => self.leaving.clone(),
        }
    }

    pub(super) fn handle_events(&mut self) {
        for event in std::mem::take(&mut self.ingest.events) {
            match event {
                Event::Exec { slot, generation } => self.image_replaced(slot, generation),
                Event::ExpectedExec { pid } => self.expected_exec(pid),
                // What does so may be our library, which is to hear of its limit before it has sent thousands.
                Event::SamplesItself { slot } => self.look_again(slot),
                Event::LiveHigh => self.thin(),
                Event::Appeared { slot } => self.appeared(slot),
                Event::Leaving { slot } => self.watch_end(slot),
            }
        }
    }

    fn shut_down(&mut self) {
        self.attached.clear();
        self.links.detach_all();
        let links = self.prices.take_links();
        self.links.close(links);
        self.links.wait_for_closing();
    }
}
