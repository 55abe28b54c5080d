//! The command line: every value is parsed here, once, into a type that cannot be wrong.

mod filter;
mod frames;
mod help;
mod ps;
mod select;
mod top;
mod verbs;

pub(crate) use filter::Filter;
pub(crate) use frames::Frames;
pub(crate) use ps::{By, PsVerb, Sort};
pub(crate) use select::Select;
pub(crate) use top::{SampledKind, TopVerb};
pub(crate) use verbs::{
    CompletionsVerb, DiffVerb, FlamegraphVerb, KindName, LeaksVerb, LifetimesVerb, ManVerb,
    MeasureName, PlanVerb, ProfileVerb, SetVerb, SymbolizeVerb, WatchVerb, format_parser,
};

use crate::connect::Address;
use crate::plan::Figures;
use crate::run::{RunVerb, StartVerb};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use sampler_common::encode::Format;
use sampler_common::estimate::Confidence;
use sampler_common::units::{UnitError, parse_bytes, parse_duration};
use sampler_daemon::pid_argument::parse_pid;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Shortest time between profiles that samplerd accepts.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Shows which code allocates the memory of running processes, and which of it is still held.
#[derive(Parser)]
#[command(name = "sampler", version, max_term_width = 80, after_help = help::SAMPLER)]
pub(crate) struct Args {
    /// Where samplerd listens: unix:PATH, tcp:127.0.0.1:PORT or tls:HOST:PORT [default:
    /// $SAMPLER_CONNECT, then unix:/run/sampler/samplerd.sock]
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
    /// Run a program under a samplerd of its own, from its first allocation, and print its profile
    /// when it ends
    #[command(after_help = help::RUN)]
    Run(Box<RunVerb>),
    /// What samplerd does, where its probes are, and what it lost
    #[command(after_help = help::STATUS)]
    Status,
    /// The processes that are or were profiled
    #[command(after_help = help::PS)]
    Ps(PsVerb),
    /// Which code allocates or holds memory
    #[command(after_help = help::PROFILE)]
    Profile(ProfileVerb),
    /// Print a profile again and again, until interrupted
    #[command(after_help = help::WATCH)]
    Watch(WatchVerb),
    /// Processes and their code, live on the terminal
    #[command(after_help = help::TOP)]
    Top(TopVerb),
    /// Draw a flame graph (SVG) of what allocates or holds memory
    #[command(after_help = help::FLAMEGRAPH)]
    Flamegraph(Box<FlamegraphVerb>),
    /// Which code holds more and more memory
    #[command(after_help = help::LEAKS)]
    Leaks(LeaksVerb),
    /// How long memory is held, and by which code
    #[command(after_help = help::LIFETIMES)]
    Lifetimes(LifetimesVerb),
    /// Change how processes are sampled, from the next allocation on
    #[command(override_usage = help::SET_USAGE, after_help = help::SET)]
    Set(SetVerb),
    /// What changed from A to B, and what of it is more than chance
    #[command(after_help = help::DIFF)]
    Diff(DiffVerb),
    /// What an interval will give, what N samples are worth, and how strategies compare
    #[command(after_help = help::PLAN)]
    Plan(PlanVerb),
    /// Add names to tables that hosts exported without
    #[command(after_help = help::SYMBOLIZE)]
    Symbolize(SymbolizeVerb),
    /// Print completions of this command line for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(CompletionsVerb),
    /// Write the manual pages
    #[command(after_help = help::MAN)]
    Man(ManVerb),
    /// Becomes the program that `run` runs
    #[command(name = "__start", hide = true)]
    Start(StartVerb),
}

/// Explains a stray number: it is one of several pids, as in `--pid $(pidof nginx)`.
fn explained(error: clap::Error) -> clap::Error {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument))
            if error.kind() == ErrorKind::UnknownArgument && parse_pid(argument).is_ok() =>
        {
            let message = format!(
                "unexpected argument '{argument}' (several processes: give each its own --pid)"
            );
            Args::command().error(ErrorKind::UnknownArgument, message)
        }
        _ => error,
    }
}

impl Args {
    /// Parses the command line of this process. Prints what is wrong with it and exits with 2.
    pub(crate) fn from_command_line() -> Args {
        let args = Args::try_parse().unwrap_or_else(|error| explained(error).exit());
        if let Verb::Profile(verb) = &args.verb
            && args.json
            && verb.format(true) != Format::Json
        {
            let message = "--json and --format name different formats (give one of them)";
            Args::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        if args.json && matches!(args.verb, Verb::Top(_)) {
            let message = "top is for the eye (--json: sampler watch, or sampler ps)";
            Args::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        if let Verb::Run(verb) = &args.verb
            && let Err(error) = verb.check(args.json, args.connect.is_some())
        {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        let filter = match &args.verb {
            Verb::Profile(verb) => Some(&verb.filter),
            Verb::Watch(verb) => Some(&verb.filter),
            Verb::Flamegraph(verb) => Some(&verb.filter),
            _ => None,
        };
        if let Some(Err(error)) = filter.map(Filter::check) {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        if let Verb::Flamegraph(verb) = &args.verb
            && let Err(error) = verb.check(args.json)
        {
            Args::command().error(ErrorKind::ArgumentConflict, error).exit();
        }
        if let Verb::Diff(verb) = &args.verb
            && verb.svg
            && args.json
        {
            let message = "--json and --svg name different formats (give one of them)";
            Args::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        if let Verb::Plan(verb) = &args.verb
            && verb.pid.is_some()
            && !verb.compare
        {
            let message = "--pid is about --compare (add it, or leave out --pid)";
            Args::command().error(ErrorKind::MissingRequiredArgument, message).exit();
        }
        // Numbers that are valid one by one can be invalid together.
        if let Verb::Plan(verb) = &args.verb
            && !verb.compare
            && let Err(error) = Figures::of(verb)
        {
            Args::command().error(ErrorKind::ValueValidation, error).exit();
        }
        args
    }
}

/// Returns the current time in nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

pub(crate) fn confidence(text: &str) -> Result<Confidence, String> {
    let level = text.parse().map_err(|_| "not a number between 0 and 1 (try 0.95)")?;
    Confidence::new(level).map_err(|error| error.to_string())
}

pub(crate) fn samples_per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(samples) if samples > 0.0 && samples <= 1e6 => Ok(samples),
        _ => Err("must be a number above 0, at most 1000000".into()),
    }
}

/// Parses a size that may be 0.
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
