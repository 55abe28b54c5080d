//! Starts everything, serves until a signal, and stops everything.

use crate::args::{Args, Unwind};
use crate::guard;
use crate::http::Bound;
use crate::inject::Injected;
use crate::web;
use anyhow::{Context as _, anyhow};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sampler_common::limits::{MAX_OPEN_PROCESSES, MAX_PROCESSES, MAX_SLOTS};
use sampler_daemon::bpf::btf::TaskOffsets;
use sampler_daemon::bpf::{Guardian, ProbeEngine, Settings, preflight};
use sampler_daemon::export::Exporter;
use sampler_daemon::inspect::allocator::spec::{self, Spec};
use sampler_daemon::inspect::process::Process;
use sampler_daemon::pid_namespace::PidNamespace;
use sampler_daemon::pipeline::{
    self, AtExit, AttachMode, Config, Exclusion, Names, Profiler, WorkerThread,
};
use sampler_daemon::rpc::listen::{self, Listener};
use sampler_daemon::rpc::serve;
use sampler_daemon::unwind::NativeFrames;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// What a person at the terminal may do next.
const NEXT: &str = "now ask in another terminal: sampler leaks, sampler profile, sampler top\n\
                    Ctrl-C here stops profiling";

/// Time that open requests may delay the end.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// Time that the worker may be busy with one task when samplerd ends.
const MAX_BUSY_AT_END: Duration = Duration::from_secs(1);
/// Time that the worker may be busy with one task. After this time the worker hangs, and samplerd
/// ends with an error.
const MAX_BUSY: Duration = Duration::from_secs(60);

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .from_env()
        .context("read RUST_LOG")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // tracing would report a failed write on standard error too. That second failure would end
        // the daemon.
        .log_internal_errors(false)
        .init();
    preflight::check()?;
    raise_descriptor_limit();
    // The guardian starts first, so that it inherits nothing that samplerd makes later. It is
    // dropped last, which detaches everything.
    let guardian = Guardian::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let result = runtime.block_on(profile(args, &guardian));
    runtime.shutdown_timeout(SHUTDOWN_GRACE);
    result
}

/// Raises the limit of descriptors to the hard limit. Each probe of the perf engine and each mapped
/// file needs a descriptor.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With a lower limit fewer files stay open. That is counted and makes no number wrong.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns the first pid that is given more than once.
fn repeated(pids: &[u32]) -> Option<u32> {
    pids.iter().enumerate().find(|(at, pid)| pids[..*at].contains(pid)).map(|(_, pid)| *pid)
}

async fn profile(args: Args, guardian: &Guardian) -> anyhow::Result<()> {
    // Files and sockets are for samplerd's user only, unless a mode is given.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Signals are caught before anything is attached, so that no signal leaves a probe behind.
    let mut interrupt = signal(SignalKind::interrupt()).context("catch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("catch SIGTERM")?;
    let namespace = PidNamespace::of_daemon()?;
    if let Some(pid) = repeated(&args.pids) {
        return Err(anyhow!("--pid {pid}: given twice (give each process once)"));
    }
    let processes =
        args.pids.iter().map(|pid| Process::open(*pid)).collect::<Result<Vec<_>, _>>()?;
    let attach_mode = attach_mode(&args);
    guard::check(&args, attach_mode)?;
    let allocators = match &args.allocator_spec {
        Some(path) => Spec::read(path).map_err(|error| anyhow!(error))?,
        None => &spec::EMPTY,
    };
    let mut config = Config {
        attach_mode,
        settings: settings(&args, attach_mode, namespace)?,
        sampling: args.sampling(),
        exclude: args.exclusions(guardian.pid()),
        allocators,
        executables: args.probe_executables.into(),
        limits: args.limits(),
        windows: args.windows,
        native: if args.native_frames { NativeFrames::Kept } else { NativeFrames::Replaced },
        at_exit: if args.keep_held { AtExit::Keep } else { AtExit::Forget },
        samplers_only: args.probes_samplers_only(),
        max_overhead: args.max_overhead,
        injecting: None,
    };
    let listener =
        Listener::bind(&args.listen, args.api.access()).await.map_err(|error| anyhow!(error))?;
    let exported = args.export.settings(!args.no_live).map_err(|error| anyhow!(error))?;
    let http = Bound::new(&args.http).await.map_err(|error| anyhow!(error))?;
    let web = web::Bound::new(&args.web).await.map_err(|error| anyhow!(error))?;
    let address = listener.address().context("ask for the listener's address")?;
    // Dropping `_token_file` removes the file.
    let (credentials, _token_file) = args.api.credentials(&address)?;
    let mut orphaned = Box::pin(orphaned(args.until_stdin_closes));
    let program = Path::new("/proc/self/exe");
    let debuginfod = args.names.start(program)?;
    let names = Names::start(program, debuginfod).context("start the symbolizer")?;
    // When it is dropped, last, the sampler is taken out.
    let put_in = |at_end| Injected::put_in(&args, &processes, at_end);
    let injected = args.at_end().map(put_in).transpose()?;
    if matches!(attach_mode, AttachMode::AllProcesses | AttachMode::Descendants) {
        config.injecting = injected.as_ref().map(|of| of.for_those_to_come(&args));
        let injector =
            config.injecting.as_ref().map(|of| Exclusion::injector(of.injector.program()));
        config.exclude.extend(injector);
    }
    let attacher = guardian.attacher();
    let keeper = names.clone();
    let attach = tokio::task::spawn_blocking(move || {
        pipeline::start(config, attacher, processes, &args.probe_files, keeper)
    });
    let (profiler, mut worker) = tokio::select! {
        attached = attach => attached??,
        // The guardian detaches what is attached by then.
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
        () = &mut orphaned => return Ok(()),
    };
    let mut stdout = std::io::stdout();
    // Nobody may be reading standard output. That is no reason to stop profiling.
    let _ = writeln!(stdout, "ready {address}").and_then(|()| stdout.flush());
    let start = |settings| Exporter::start(settings, profiler.clone(), names.clone());
    let exporter = exported.map(start);
    let exports = exporter.as_ref().map(Exporter::exports).unwrap_or_default();
    let _http = http.map(|bound| bound.serve(profiler.clone(), names.clone(), exports.clone()));
    let _web = web.map(|bound| bound.serve(profiler.clone(), names.clone()));
    if stdout.is_terminal() && address.to_string() == listen::DEFAULT {
        let _ = writeln!(stdout, "{NEXT}");
    }
    let mut hangs = false;
    let result = serve::serve(listener, profiler.clone(), names, exports, credentials, async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = &mut orphaned => {}
            // The worker has panicked, or the guardian has ended. Nothing is profiled then, so
            // samplerd ends.
            () = worker.ended() => {}
            () = profiler.heartbeat().stalled(MAX_BUSY) => hangs = true,
        }
    })
    .await;
    if let Some(exporter) = exporter {
        exporter.finish().await;
    }
    let ended = end(profiler, worker).await;
    drop(injected);
    anyhow::ensure!(
        !hangs,
        "the worker thread hangs: nothing was answered for {} s (start samplerd again)",
        MAX_BUSY.as_secs()
    );
    result.and(ended)
}

/// Ends the worker. A worker that hangs is left behind: the guardian detaches everything when
/// samplerd has ended.
async fn end(profiler: Profiler, worker: WorkerThread) -> anyhow::Result<()> {
    let stopping = profiler.clone();
    let ended = tokio::task::spawn_blocking(move || {
        // If the queue is full, `stop` waits for the worker.
        stopping.stop();
        worker.join()
    });
    tokio::select! {
        ended = ended => ended?,
        () = profiler.heartbeat().stalled(MAX_BUSY_AT_END) => {
            tracing::warn!("the worker thread does not end: samplerd ends without it, and the probe guardian detaches everything");
            Ok(())
        }
    }
}

/// Completes when the process that started samplerd has ended: its end of standard input closes
/// then.
async fn orphaned(requested: bool) {
    let (sender, closed) = tokio::sync::oneshot::channel::<()>();
    // Nobody waits for this thread, so it does not delay the end of the process.
    let reader = std::thread::Builder::new().name("stdin".into());
    let started = requested
        && reader
            .spawn(move || {
                let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
                drop(sender);
            })
            .is_ok();
    // Nothing is ever sent. The channel closes when the thread drops the sender.
    let _ = closed.await;
    if !started {
        std::future::pending().await
    }
}

/// Maximum number of processes with their own links.
pub(crate) const MAX_OWN_LINK_PROCESSES: usize = 4;

fn attach_mode(args: &Args) -> AttachMode {
    match args.pids.len() {
        _ if args.all => AttachMode::AllProcesses,
        _ if args.follow => AttachMode::Descendants,
        // In window mode each process has its own links.
        _ if args.windows.is_some() => AttachMode::Pids,
        0..=MAX_OWN_LINK_PROCESSES => AttachMode::Pids,
        _ => AttachMode::PidsSharedLinks,
    }
}

/// Returns the number of process slots.
fn slots(args: &Args) -> anyhow::Result<u32> {
    let given = u32::try_from(args.pids.len()).unwrap_or(u32::MAX);
    let bound = args.max_processes.unwrap_or(MAX_SLOTS);
    if given > bound {
        anyhow::bail!(
            "{given} processes given with --pid: the most at a time is {bound} (give fewer, or raise --max-processes, at most {MAX_SLOTS})"
        );
    }
    let usual = if args.all || args.follow { MAX_OPEN_PROCESSES } else { MAX_PROCESSES.max(given) };
    Ok(args.max_processes.unwrap_or(usual))
}

/// Returns the offsets of the fields that are read of kernel tasks. Without them forks cannot be
/// followed.
fn tasks(attach_mode: AttachMode) -> anyhow::Result<Option<TaskOffsets>> {
    let tasks = TaskOffsets::of_kernel();
    if attach_mode != AttachMode::Descendants {
        return Ok(tasks.ok());
    }
    tasks.map(Some).context(
        "--follow: needs a kernel that describes its types (CONFIG_DEBUG_INFO_BTF; or give --pid for each process, or --all)",
    )
}

/// Returns the daemon's pid namespace, unless it is the initial one.
fn pid_namespace(
    namespace: PidNamespace,
    tasks: Option<TaskOffsets>,
) -> anyhow::Result<Option<u64>> {
    match namespace {
        PidNamespace::Initial => Ok(None),
        PidNamespace::Inner(inode) if tasks.is_some_and(|of| of.numbers.is_some()) => {
            Ok(Some(inode))
        }
        PidNamespace::Inner(_) => anyhow::bail!(
            "samplerd runs in a pid namespace of its own, which needs a kernel that describes its types (CONFIG_DEBUG_INFO_BTF; or run samplerd in the host's: docker run --pid=host)"
        ),
    }
}

fn settings(
    args: &Args,
    attach_mode: AttachMode,
    namespace: PidNamespace,
) -> anyhow::Result<Settings> {
    let engine = match args.probe_engine {
        None => ProbeEngine::detect().context("ask the kernel for its uprobes")?,
        Some(wanted) => {
            let engine = ProbeEngine::from(wanted);
            if !engine.is_supported().context("ask the kernel for its uprobes")? {
                let best = ProbeEngine::detect().context("ask the kernel for its uprobes")?;
                anyhow::bail!(
                    "--probe-engine {engine}: this kernel does not have it (best: {best})"
                );
            }
            engine
        }
    };
    if args.at_end().is_some() && engine == ProbeEngine::Perf {
        anyhow::bail!(
            "--inject: perf probes do not reach the sampler in a process (it takes Linux 6.10; leave --inject out)"
        );
    }
    if args.samplers_only && engine == ProbeEngine::Perf {
        anyhow::bail!(
            "--samplers-only: perf probes do not reach what samples by itself, so that nothing would be seen (it takes Linux 6.10; leave it out, or run without --preload)"
        );
    }
    let tasks = tasks(attach_mode)?;
    Ok(Settings {
        engine,
        frame_pointers: args.unwind == Unwind::Fp,
        snapshot_bytes: args.snapshot,
        stack_cache: !args.no_stack_cache && args.windows.is_none(),
        track_live: !args.no_live && args.windows.is_none(),
        max_live: args.max_live,
        ring_bytes: args.ring,
        slots: slots(args)?,
        everyone: attach_mode == AttachMode::AllProcesses,
        shares: attach_mode == AttachMode::AllProcesses || args.follow || args.pids.len() > 1,
        usdt: !args.no_usdt && args.windows.is_none(),
        mappings: !args.no_mappings && args.windows.is_none(),
        follow: attach_mode == AttachMode::Descendants,
        pid_namespace: pid_namespace(namespace, tasks)?,
        tasks,
        ring_pressure: args.max_samples_per_second.is_finite(),
        windows: args.windows,
    })
}
