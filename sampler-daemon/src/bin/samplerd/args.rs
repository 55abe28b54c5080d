//! The command line of samplerd.

use crate::api::Api;
use crate::debuginfod::Names;
use crate::export::Export;
use crate::http::Http;
use crate::inject::AtEnd;
use crate::manual::{self, Manual};
use crate::web::Web;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use sampler_common::limits::{DEFAULT_MAX_LIVE, MAX_SLOTS, PRELOADED_PER_SECOND, SNAPSHOT_TIERS};
use sampler_common::pressure::Limits;
use sampler_common::sampling::Strategy;
use sampler_common::units;
use sampler_common::windows::Budget;
use sampler_daemon::bpf::ProbeEngine;
use sampler_daemon::inspect::code::moving::Executables;
use sampler_daemon::pid_argument::parse_pid;
use sampler_daemon::pipeline::Exclusion;
use sampler_daemon::rpc::listen;
use sampler_daemon::store::{Criterion, Sampling};
use std::path::PathBuf;

/// Default interval: mean bytes between samples.
const DEFAULT_INTERVAL_BYTES: u64 = 512 << 10;
/// Default interval with `--max-overhead`. It is the smallest interval; the budget raises it.
const BUDGET_INTERVAL_BYTES: u64 = 64 << 10;

/// Headings of the options in the help.
const WHICH: &str = "Which processes";
const HOW: &str = "How they are profiled";
const SERVED: &str = "Where the profile is served";
const PUSHED: &str = "Where the profile is pushed to";
const NAMES: &str = "Names and stacks";
const BOUNDS: &str = "Bounds";
const RARE: &str = "Rarely needed";

/// Profiles which code allocates the memory of running processes, and which of it is still held.
///
/// Samples allocations until it is stopped (Ctrl-C). In another terminal ask it: sampler leaks,
/// sampler profile, sampler top
#[derive(Debug, Parser)]
#[command(
    name = "samplerd",
    version,
    max_term_width = 80,
    after_help = manual::AFTER_HELP
)]
pub(crate) struct Args {
    /// Process to profile (repeatable)
    #[arg(help_heading = WHICH, long = "pid", value_name = "PID", num_args = 0.., allow_negative_numbers = true, value_parser = parse_pid)]
    pub(crate) pids: Vec<u32>,

    /// Profile every process of the machine, as they come and go
    #[arg(help_heading = WHICH, long, conflicts_with = "pids")]
    pub(crate) all: bool,

    /// Profile also every process that these start, and those in turn
    #[arg(help_heading = WHICH, long, conflicts_with = "all")]
    pub(crate) follow: bool,

    /// Not these processes (repeatable): pid:12, comm:NAME, exe:PATH or cgroup:GROUP; NAME and PATH may be patterns with * and ?.
    /// With --all, or with --follow, where what they start is profiled all the same; samplerd itself and init are excluded anyway
    #[arg(help_heading = WHICH, long, value_name = "WHICH", value_parser = Criterion::parse)]
    pub(crate) exclude: Vec<Criterion>,

    /// Do not exclude init
    #[arg(help_heading = WHICH, long)]
    pub(crate) no_default_excludes: bool,

    /// Probe this file before a process has mapped it, a static program for example (repeatable)
    #[arg(help_heading = WHICH, long = "probe-file", value_name = "FILE")]
    pub(crate) probe_files: Vec<PathBuf>,

    /// Most processes profiled at a time, 4096 at most [default: 1024 with --all and --follow, otherwise 64 or as many as are given]
    #[arg(help_heading = WHICH, long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    pub(crate) max_processes: Option<u32>,

    /// Put the in-process sampler into the running processes, and take it out at the end: what is held is known, and no
    /// call traps; without a restart, and without probes on malloc. With --follow also into what they start. `--inject=leave` leaves it in
    #[arg(help_heading = HOW, long, value_name = "AT-END", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "eject",
          conflicts_with_all = ["windows", "no_usdt", "samplers_only"])]
    pub(crate) inject: Option<AtEnd>,

    /// With --inject and --all or --follow: into these processes only (repeatable; as --exclude). With --all it must be given
    #[arg(help_heading = HOW, long, value_name = "WHICH", value_parser = Criterion::parse)]
    pub(crate) inject_only: Vec<Criterion>,

    /// Inject (--inject), and take no more samples than this share of each process's CPU time pays for (1%): the interval follows
    #[arg(help_heading = HOW, long, value_name = "SHARE", allow_hyphen_values = true, value_parser = Budget::parse,
          conflicts_with_all = ["windows", "no_usdt", "samplers_only", "max_samples_per_process", "samples_per_second"])]
    pub(crate) max_overhead: Option<Budget>,

    /// Probe each process in short windows at random times, which cost it this share of its CPU time (1%): intervals are wide, and
    /// nothing is known of live memory
    #[arg(help_heading = HOW, long, value_name = "SHARE", allow_hyphen_values = true, value_parser = Budget::parse,
          conflicts_with_all = ["keep_held", "interval", "strategy", "one_in", "samples_per_second"])]
    pub(crate) windows: Option<Budget>,

    /// Mean bytes between samples, 1 to 4GiB; smaller is more exact and costs more [default: 512KiB; with --max-overhead 64KiB]
    #[arg(help_heading = HOW, long, value_name = "SIZE", allow_hyphen_values = true,
          value_parser = |text: &str| units::parse_interval(text))]
    pub(crate) interval: Option<u64>,

    /// How it is decided which allocations are sampled
    #[arg(help_heading = HOW, long, value_enum, default_value_t = StrategyName::Geometric)]
    pub(crate) strategy: StrategyName,

    /// Bernoulli: sample one in N allocations instead of as many as the interval would give
    #[arg(help_heading = HOW, long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) one_in: Option<u64>,

    /// Samples wanted in a second: the interval follows the program, starting from --interval
    #[arg(help_heading = HOW, long, value_name = "X", allow_negative_numbers = true, conflicts_with = "one_in",
          value_parser = samples_per_second)]
    pub(crate) samples_per_second: Option<f64>,

    /// Do not probe frees: half the cost, and nothing is known of live memory
    #[arg(help_heading = HOW, long)]
    pub(crate) no_live: bool,

    /// Keep what a process holds when it exits in the live profile, to find leaks
    #[arg(help_heading = HOW, long, conflicts_with = "no_live")]
    pub(crate) keep_held: bool,

    /// Do not probe mmap, mremap, munmap and sbrk: no profile of kind mapped
    #[arg(help_heading = HOW, long)]
    pub(crate) no_mappings: bool,

    /// Probe malloc also where a process samples its allocations by itself (otel_memory)
    #[arg(help_heading = HOW, long)]
    pub(crate) no_usdt: bool,

    /// Probe only files that sample their allocations by themselves (otel_memory, `sampler run --preload`): other programs pay
    /// nothing, and nothing is seen of them
    #[arg(help_heading = HOW, long, conflicts_with_all = ["no_usdt", "windows"])]
    pub(crate) samplers_only: bool,

    /// File that describes allocators of your own: pools, arenas (docs/allocator-spec.md)
    #[arg(help_heading = HOW, long, value_name = "FILE")]
    pub(crate) allocator_spec: Option<std::path::PathBuf>,

    /// Where to serve the API: unix:PATH, tcp:127.0.0.1:PORT, or tls:ADDRESS:PORT (with --tls-cert)
    #[arg(help_heading = SERVED, long, value_name = "ADDRESS", default_value = listen::DEFAULT)]
    pub(crate) listen: listen::Address,

    #[command(flatten, next_help_heading = SERVED)]
    pub(crate) api: Api,

    #[command(flatten, next_help_heading = SERVED)]
    pub(crate) http: Http,

    #[command(flatten, next_help_heading = SERVED)]
    pub(crate) web: Web,

    #[command(flatten, next_help_heading = PUSHED)]
    pub(crate) export: Export,

    #[command(flatten, next_help_heading = NAMES)]
    pub(crate) names: Names,

    /// How stacks are found: by unwind tables from a copy of the stack, or by frame pointers
    #[arg(help_heading = NAMES, long, value_enum, default_value_t = Unwind::Dwarf)]
    pub(crate) unwind: Unwind,

    /// Most bytes of stack copied for each sample (4KiB, 8KiB, 16KiB, 32KiB or 64KiB)
    #[arg(help_heading = NAMES, long, value_name = "SIZE", default_value = "32KiB", value_parser = snapshot,
          allow_hyphen_values = true)]
    pub(crate) snapshot: u32,

    /// Copy the stack of every sample, also where it is known already
    #[arg(help_heading = NAMES, long)]
    pub(crate) no_stack_cache: bool,

    /// Show the interpreter's own frames too where Python frames stand for them
    #[arg(help_heading = NAMES, long)]
    pub(crate) native_frames: bool,

    /// Most samples taken in a second, or `unlimited`; beyond it the intervals of those rise that have more than their share
    #[arg(help_heading = BOUNDS, long, value_name = "N", default_value = "25000", allow_hyphen_values = true, value_parser = Limits::parse)]
    pub(crate) max_samples_per_second: f64,

    /// The same for each process [default: unlimited, but 1000 of one with the preloaded library: 1 % of a CPU (of these too unlimited with --max-samples-per-second unlimited)]
    #[arg(help_heading = BOUNDS, long, value_name = "N", allow_hyphen_values = true, value_parser = Limits::parse)]
    pub(crate) max_samples_per_process: Option<f64>,

    /// Most live samples held; the interval grows before there are more
    #[arg(help_heading = BOUNDS, long, value_name = "N", default_value_t = DEFAULT_MAX_LIVE, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(16..=1 << 24))]
    pub(crate) max_live: u32,

    /// Size of the ring buffer between kernel and daemon (a power of two)
    #[arg(help_heading = BOUNDS, long, alias = "ring-bytes", value_name = "SIZE", default_value = "16MiB",
          value_parser = ring, allow_hyphen_values = true)]
    pub(crate) ring: u32,

    /// Kind of probe; by default the best that this kernel has
    #[arg(help_heading = RARE, long, value_enum)]
    pub(crate) probe_engine: Option<Engine>,

    /// Whether allocators that are linked into an executable are probed. A program that moves its code to anonymous memory while it is probed is
    /// killed: `checked` leaves those alone whose code looks as if it did that
    #[arg(help_heading = RARE, long, value_enum, value_name = "WHICH", default_value_t = ProbedExecutables::Checked)]
    pub(crate) probe_executables: ProbedExecutables,

    /// End when standard input is closed: for programs that start samplerd
    #[arg(help_heading = RARE, long)]
    pub(crate) until_stdin_closes: bool,

    #[command(flatten, next_help_heading = RARE)]
    manual: Manual,
}

/// How stacks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unwind {
    /// By the modules' unwind tables.
    Dwarf,
    /// By frame pointers.
    Fp,
}

/// Kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Session uprobes, Linux 6.13.
    Session,
    /// Multi uprobes, Linux 6.10.
    Multi,
    /// Perf events, Linux 5.15.
    Perf,
}

/// Which allocators in executables are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbedExecutables {
    /// All but those of programs that seem to move their code.
    Checked,
    /// All, at that risk.
    All,
    /// None.
    None,
}

impl From<ProbedExecutables> for Executables {
    fn from(probed: ProbedExecutables) -> Executables {
        match probed {
            ProbedExecutables::Checked => Executables::Checked,
            ProbedExecutables::All => Executables::All,
            ProbedExecutables::None => Executables::None,
        }
    }
}

impl From<Engine> for ProbeEngine {
    fn from(engine: Engine) -> ProbeEngine {
        match engine {
            Engine::Session => ProbeEngine::Session,
            Engine::Multi => ProbeEngine::Multi,
            Engine::Perf => ProbeEngine::Perf,
        }
    }
}

/// How it is decided which allocations are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// Every byte is a trial: an allocation of s bytes is sampled with 1 − (1 − 1/R)^s.
    Geometric,
    /// Sample points fall into an allocation; it is certain where the chance of one is above 99 %.
    Poisson,
    /// Every allocation is one trial, whatever its size.
    Bernoulli,
    /// Every n-th byte: biased on periodic programs, without an interval, for comparison.
    Stride,
    /// As geometric, with rates by size class for the least error of live bytes.
    Adaptive,
}

impl From<StrategyName> for Strategy {
    fn from(strategy: StrategyName) -> Strategy {
        match strategy {
            StrategyName::Geometric => Strategy::Geometric,
            StrategyName::Poisson => Strategy::Poisson,
            StrategyName::Bernoulli => Strategy::Bernoulli,
            StrategyName::Stride => Strategy::Stride,
            StrategyName::Adaptive => Strategy::Adaptive,
        }
    }
}

impl Args {
    /// Whether only files are probed that sample their allocations by themselves. An injected
    /// process samples by itself, so its malloc must not be probed too.
    pub(crate) fn probes_samplers_only(&self) -> bool {
        self.samplers_only || self.at_end().is_some()
    }

    /// Returns what happens to injected samplers at the end; `None` if nothing is injected.
    pub(crate) fn at_end(&self) -> Option<AtEnd> {
        self.inject.or(self.max_overhead.map(|_| AtEnd::default()))
    }

    /// Parses the command line of this process. Prints what is wrong with it and exits with 2.
    pub(crate) fn from_command_line() -> Args {
        let args = Args::parse();
        match args.manual.serve(Args::command()) {
            Ok(true) => std::process::exit(0),
            Ok(false) => {}
            Err(error) => Args::command().error(ErrorKind::Io, format!("{error:#}")).exit(),
        }
        if args.pids.is_empty() && !args.all {
            let error = "which processes? (give --pid PID, or --all for every process of the machine; pidof and pgrep print no PID if no program of that name runs)";
            Args::command().error(ErrorKind::MissingRequiredArgument, error).exit();
        }
        if !args.probe_files.is_empty() && !args.all && !args.follow {
            let error = "--probe-file is for processes to come (add --all or --follow)";
            Args::command().error(ErrorKind::MissingRequiredArgument, error).exit();
        }
        if let Some(error) = args.unclear_injection() {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        if let Some(error) = args.api.contradiction(&args.listen) {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        if let Err(error) = args.http.place() {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        if let Err(error) = args.web.place() {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        if let Err(error) = args.export.check() {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        // Numbers that are valid one by one can be invalid together.
        if let Err(error) = args.sampling().check() {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        if !args.comes_and_goes() && (!args.exclude.is_empty() || args.no_default_excludes) {
            let error = "--exclude and --no-default-excludes are about processes that nobody names (add --all or --follow, or leave out their --pid)";
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        args
    }

    /// Returns why it is unclear which processes are to be injected; `None` if it is clear.
    fn unclear_injection(&self) -> Option<&'static str> {
        let injects = self.at_end().is_some();
        match () {
            () if injects && self.all && self.inject_only.is_empty() => Some(
                "--all --inject: nobody injects a whole machine by accident (add --inject-only comm:NAME, exe:PATH or cgroup:GROUP)",
            ),
            () if !self.inject_only.is_empty() && !injects => {
                Some("--inject-only: nothing is injected (add --inject)")
            }
            () if !self.inject_only.is_empty() && !self.comes_and_goes() => Some(
                "--inject-only chooses among processes that nobody names (add --all or --follow, or leave it out)",
            ),
            () => None,
        }
    }

    /// Whether processes are profiled that the command line does not name.
    fn comes_and_goes(&self) -> bool {
        self.all || self.follow
    }

    /// Returns the processes that are not to be profiled.
    pub(crate) fn exclusions(&self, guardian: u32) -> Vec<Exclusion> {
        let mut all = Exclusion::daemon(guardian).to_vec();
        if !self.no_default_excludes {
            all.extend(Exclusion::defaults());
        }
        let requested = self.exclude.iter().cloned();
        all.extend(requested.map(|criterion| Exclusion { criterion, reason: "" }));
        all
    }

    /// Returns the maximum numbers of samples in a second.
    pub(crate) fn limits(&self) -> Limits {
        let (daemon, of_each) = (self.max_samples_per_second, self.max_samples_per_process);
        let process = of_each.unwrap_or(f64::INFINITY);
        // A process with the library has its own limit. If the total is unlimited, so is that
        // process.
        let library = match of_each {
            // The overhead budget limits the samples.
            None if self.max_overhead.is_some() => f64::INFINITY,
            None if daemon.is_finite() => PRELOADED_PER_SECOND as f64,
            _ => process,
        };
        Limits { daemon, process, library }
    }

    /// Returns how allocations are to be sampled.
    pub(crate) fn sampling(&self) -> Sampling {
        Sampling {
            strategy: self.strategy.into(),
            interval_bytes: self.interval.unwrap_or(match self.max_overhead {
                None => DEFAULT_INTERVAL_BYTES,
                Some(_) => BUDGET_INTERVAL_BYTES,
            }),
            one_in: self.one_in,
            samples_per_second: self.samples_per_second,
        }
    }
}

/// Parses samples in a second. Infinite means unlimited.
fn samples_per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(samples) if samples > 0.0 && samples <= 1e6 => Ok(samples),
        _ => Err("must be a number above 0, at most 1000000".into()),
    }
}

fn snapshot(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text).map_err(|error| error.to_string())?;
    match SNAPSHOT_TIERS.iter().find(|tier| **tier as u64 == bytes) {
        Some(tier) => Ok(*tier as u32),
        None => Err("must be 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".into()),
    }
}

fn ring(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text).map_err(|error| error.to_string())?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("must be a power of two, 4KiB to 1GiB".into()),
    }
}
