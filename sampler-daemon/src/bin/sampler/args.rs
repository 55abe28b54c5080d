//! The command line: every value is parsed here, once, into a type that cannot be wrong.

use crate::connect::Address;
use crate::diff::Source;
use crate::plan::Figures;
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args as Group, CommandFactory, Parser, Subcommand, ValueEnum};
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::Kind;
use sampler_common::sampling::Strategy;
use sampler_common::units::{
    Time, UnitError, parse_bytes, parse_duration, parse_interval, parse_time,
};
use sampler_daemon::rpc::v1;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Shortest time between profiles that samplerd accepts.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Shows which code allocates the memory of running processes, and which of it is still held.
#[derive(Parser)]
#[command(name = "sampler", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Where samplerd listens: unix:PATH or tcp:127.0.0.1:PORT [default: $SAMPLER_CONNECT, then
    /// unix:/run/sampler/samplerd.sock]
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub(crate) connect: Option<Address>,
    /// Print json instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// What samplerd does, where its probes are, and what it lost
    Status,
    /// The processes that are or were profiled
    Ps,
    /// One profile
    Profile(ProfileVerb),
    /// A profile every period, until interrupted
    Watch(WatchVerb),
    /// How long memory is held, by stack
    Lifetimes(LifetimesVerb),
    /// Change how processes are sampled, from the next allocation on
    Set(SetVerb),
    /// What changed from A to B, and what of it is more than chance
    Diff(DiffVerb),
    /// What an interval will give, what N samples are worth, and how strategies compare
    Plan(PlanVerb),
}

/// Which profile is asked for.
#[derive(Group)]
pub(crate) struct Filter {
    /// Only this process; may be repeated [default: all]
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pids: Vec<u32>,
    /// alloc: allocated since attach; live: still held; peak: held at the largest live total since attach
    #[arg(long, value_enum, default_value = "alloc")]
    pub(crate) kind: KindName,
    /// Confidence of every interval, between 0 and 1
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) confidence: Confidence,
    /// How samples become estimates: weighted, failed-trials (geometric sampling only) or calibrated
    /// (to the exact totals of each size class) [default: weighted]
    #[arg(long, value_name = "NAME", value_parser = Estimator::parse)]
    pub(crate) estimator: Option<Estimator>,
    /// Only the last TIME (30s, 5m), rounded outward to time slots
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["since", "until"])]
    pub(crate) last: Option<Duration>,
    /// Only from TIME on: 5m (ago), 2026-11-20T13:07:37Z, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) since: Option<Time>,
    /// Only before TIME, written as for --since
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) until: Option<Time>,
    /// With kind live: only blocks held for TIME or longer
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) min_age: Option<Duration>,
    /// With kind live: only blocks held for TIME at most
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) max_age: Option<Duration>,
    /// Only requests of SIZE or more, rounded outward to 1/32 of a power of two
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) min_size: Option<u64>,
    /// Only requests of SIZE or less
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) max_size: Option<u64>,
    /// Keep the N largest stacks; in text, N functions and N stacks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: Option<u32>,
}

impl Filter {
    /// What is right one by one and wrong together, in one line.
    fn check(&self) -> Result<(), String> {
        let kind = Kind::from(self.kind).name();
        let times = self.last.is_some() || self.since.is_some() || self.until.is_some();
        if (self.min_age.is_some() || self.max_age.is_some()) && kind != "live" {
            return Err(format!(
                "--min-age and --max-age are about blocks that are held, not kind {kind} (add --kind live)"
            ));
        }
        if times && kind == "peak" {
            return Err("--kind peak is since attach, without --last, --since or --until".into());
        }
        if self.min_age.zip(self.max_age).is_some_and(|(min, max)| min > max) {
            return Err("--min-age is above --max-age (swap them)".into());
        }
        if self.min_size.zip(self.max_size).is_some_and(|(min, max)| min > max) {
            return Err("--min-size is above --max-size (swap them)".into());
        }
        let now = unix_ns();
        let window = self.since.zip(self.until);
        if window.is_some_and(|(since, until)| since.unix_ns(now) >= until.unix_ns(now)) {
            return Err("--since is not before --until (swap them)".into());
        }
        if self.since.is_some_and(|since| since.unix_ns(now) > now) {
            return Err("--since is in the future (give a time before now)".into());
        }
        Ok(())
    }

    /// The request, for all stacks or the top ones.
    pub(crate) fn request(&self, top: Option<u32>) -> v1::GetProfileRequest {
        let kind = match self.kind.into() {
            Kind::Alloc => v1::Kind::Alloc,
            Kind::Live => v1::Kind::Live,
            Kind::Peak => v1::Kind::Peak,
        };
        let nanoseconds = |of: Option<Duration>| of.map_or(0, |of| of.as_nanos() as u64);
        let now = unix_ns();
        // 0 is no time: what is before it is a nanosecond later.
        let time = |of: Option<Time>| of.map_or(0, |of| of.unix_ns(now).max(1));
        v1::GetProfileRequest {
            kind: kind.into(),
            pids: self.pids.clone(),
            confidence: self.confidence.level(),
            top: top.unwrap_or(0),
            estimator: self.estimator.map_or("", Estimator::name).to_owned(),
            since_unix_ns: time(self.since),
            until_unix_ns: time(self.until),
            last_ns: nanoseconds(self.last),
            min_age_ns: nanoseconds(self.min_age),
            max_age_ns: nanoseconds(self.max_age),
            min_size: self.min_size.unwrap_or(0),
            max_size: self.max_size.unwrap_or(0),
        }
    }
}

#[derive(Group)]
pub(crate) struct ProfileVerb {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Output format [default: text]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Write to this file, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Group)]
pub(crate) struct WatchVerb {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Time between profiles, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = period)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) period: Duration,
    /// Stop after N profiles
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) count: Option<u64>,
}

#[derive(Group)]
pub(crate) struct LifetimesVerb {
    /// Only this process; may be repeated [default: all]
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pids: Vec<u32>,
    /// Confidence of every interval, between 0 and 1
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) confidence: Confidence,
    /// The N stacks with most bytes × seconds [default: 20 in text, all in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: Option<u32>,
}

#[derive(Group)]
#[group(required = true, multiple = true,
        args = ["interval", "strategy", "one_in", "samples_per_second"])]
pub(crate) struct SetVerb {
    /// Mean bytes between samples: 512KiB, 1MiB, 4096; 1 to 4GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_interval, allow_hyphen_values = true)]
    pub(crate) interval: Option<u64>,
    /// How it is decided which allocations are sampled
    #[arg(long, value_parser = PossibleValuesParser::new(Strategy::ALL.map(Strategy::name)))]
    pub(crate) strategy: Option<String>,
    /// Bernoulli: sample one in N allocations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) one_in: Option<u64>,
    /// Samples wanted in a second: the interval follows the program
    #[arg(long, value_name = "X", value_parser = samples_per_second, conflicts_with = "one_in")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) samples_per_second: Option<f64>,
    /// Only this process; may be repeated [default: all]
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pids: Vec<u32>,
}

#[derive(Group)]
pub(crate) struct DiffVerb {
    /// A saved json profile; a process, pid:4121; the last 5m; or a window, 10m..5m. Of one process: pid:4121@5m
    pub(crate) a: Source,
    /// As A
    pub(crate) b: Source,
    /// alloc: what was allocated; live: what is still held [default: that of a saved profile, else alloc]
    #[arg(long, value_enum)]
    pub(crate) kind: Option<KindName>,
    /// Confidence of every interval, between 0 and 1
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) confidence: Confidence,
    /// Compare rates, where A and B differ in length
    #[arg(long)]
    pub(crate) per_second: bool,
    /// A and B share no sample, though their pids and times may say so: they are of two machines
    #[arg(long)]
    pub(crate) independent: bool,
    /// Show N stacks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: Option<u32>,
}

#[derive(Group)]
pub(crate) struct PlanVerb {
    /// Mean bytes between samples: 512KiB, 1MiB, 4096; 1 to 4GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_interval, allow_hyphen_values = true)]
    #[arg(required_unless_present = "compare")]
    pub(crate) interval: Option<u64>,
    /// Bytes of each allocation [default: 1 byte, the worst case]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,
    /// Bytes that an allocation site, or all of them, will allocate
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    #[arg(required_unless_present = "compare")]
    pub(crate) bytes: Option<u64>,
    /// Compare strategies at the same number of samples: their variance, times the least there is
    #[arg(long, conflicts_with_all = ["size", "bytes", "samples"])]
    pub(crate) compare: bool,
    /// With --compare: for what this process allocates and keeps [default: built-in mixes of sizes]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pid: Option<u32>,
    /// Which totals N samples may come from (failed trials)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) samples: Option<u64>,
    /// Bytes from each sample's hit to its end, summed [default: 0, failed trials alone]
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none, requires = "samples")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) tail_bytes: Option<u64>,
    /// Confidence of the failed trials, between 0 and 1 [default: 0.95]
    #[arg(long, value_name = "LEVEL", value_parser = confidence, requires = "samples")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) confidence: Option<Confidence>,
}

impl PlanVerb {
    /// Interval and bytes; without `--compare` both were given.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (self.interval.unwrap_or(0), self.bytes.unwrap_or(0))
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KindName {
    Alloc,
    Live,
    Peak,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Kind {
        match name {
            KindName::Alloc => Kind::Alloc,
            KindName::Live => Kind::Live,
            KindName::Peak => Kind::Peak,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people
    Text,
    /// root;…;leaf BYTES, for flame graphs
    Folded,
    /// gzipped profile.proto, for go tool pprof
    Pprof,
    /// jemalloc's heap_v2 text, for jeprof and pprof
    Jeprof,
    /// Everything, with moments
    Json,
}

impl ProfileVerb {
    /// The format asked for; `--json` is short for `--format json`.
    pub(crate) fn format(&self, json: bool) -> Format {
        match self.format {
            None if json => Format::Json,
            None => Format::Text,
            Some(format) => format,
        }
    }
}

impl Args {
    /// The command line of this process; prints what is wrong with it and exits with 2.
    pub(crate) fn from_command_line() -> Args {
        let args = Args::parse();
        if let Verb::Profile(verb) = &args.verb
            && args.json
            && verb.format(true) != Format::Json
        {
            let message = "--json and --format name different formats (give one of them)";
            Args::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        let filter = match &args.verb {
            Verb::Profile(verb) => Some(&verb.filter),
            Verb::Watch(verb) => Some(&verb.filter),
            _ => None,
        };
        if let Some(Err(error)) = filter.map(Filter::check) {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        if let Verb::Plan(verb) = &args.verb
            && verb.pid.is_some()
            && !verb.compare
        {
            let message = "--pid is about --compare (add it, or leave out --pid)";
            Args::command().error(ErrorKind::MissingRequiredArgument, message).exit();
        }
        // Numbers that are right one by one and wrong together.
        if let Verb::Plan(verb) = &args.verb
            && !verb.compare
            && let Err(error) = Figures::of(verb)
        {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        args
    }
}

/// Now, nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

fn confidence(text: &str) -> Result<Confidence, String> {
    let level = text.parse().map_err(|_| "not a number between 0 and 1 (try 0.95)")?;
    Confidence::new(level).map_err(|error| error.to_string())
}

fn samples_per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(samples) if samples > 0.0 && samples <= 1e6 => Ok(samples),
        _ => Err("must be a number above 0, at most 1000000".into()),
    }
}

/// A size that may be 0.
fn bytes_or_none(text: &str) -> Result<u64, UnitError> {
    if text.trim() == "0" { Ok(0) } else { parse_bytes(text) }
}

fn period(text: &str) -> Result<Duration, String> {
    let period = parse_duration(text).map_err(|error| error.to_string())?;
    if period < MIN_PERIOD {
        return Err(format!("period {text} is shorter than 100ms (try 1s)"));
    }
    Ok(period)
}
