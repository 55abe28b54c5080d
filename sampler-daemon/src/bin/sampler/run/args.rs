//! Options of `sampler run`, and those of its copy that becomes the program.

use crate::args::{KindName, confidence, format_parser, samples_per_second};
use clap::Args as Group;
use clap::builder::PossibleValuesParser;
use sampler_common::encode::Format;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::pressure::Limits;
use sampler_common::profile::Kind;
use sampler_common::sampling::Strategy;
use sampler_common::units::parse_interval;
use sampler_daemon::debuginfod::Servers;
use sampler_daemon::rpc::convert::kind_to_wire;
use sampler_daemon::rpc::v1;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Group)]
pub(crate) struct RunVerb {
    /// Mean bytes between samples: 512KiB, 1MiB, 4096; 1 to 4GiB [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_interval, allow_hyphen_values = true)]
    pub(super) interval: Option<u64>,
    /// How it is decided which allocations are sampled [default: geometric]
    #[arg(long, value_parser = PossibleValuesParser::new(Strategy::ALL.map(Strategy::name)))]
    pub(super) strategy: Option<String>,
    /// Bernoulli: sample one in N allocations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    #[arg(allow_negative_numbers = true)]
    pub(super) one_in: Option<u64>,
    /// Samples wanted in a second: the interval follows the program
    #[arg(long, value_name = "X", value_parser = samples_per_second, conflicts_with = "one_in")]
    #[arg(allow_negative_numbers = true)]
    pub(super) samples_per_second: Option<f64>,
    /// Most samples of a process in a second, or `unlimited`; beyond it its interval rises [default: unlimited, with --preload 1000: 1 % of a CPU]
    #[arg(long, value_name = "N", value_parser = Limits::parse, allow_hyphen_values = true)]
    pub(super) max_samples_per_process: Option<f64>,
    /// How stacks are found [default: dwarf]
    #[arg(long, value_parser = ["dwarf", "fp"])]
    pub(super) unwind: Option<String>,
    /// Do not probe frees: half the cost, and nothing is known of what is held
    #[arg(long)]
    pub(super) no_live: bool,
    /// Kind of probe; by default the best that this kernel has
    #[arg(long, value_parser = ["session", "multi", "perf"])]
    pub(super) probe_engine: Option<String>,
    /// Whether allocators that are linked into an executable are probed. A program that moves its code to anonymous memory is killed then:
    /// `checked` leaves those alone whose code looks as if it did that [default: checked]
    #[arg(long, value_name = "WHICH", value_parser = ["checked", "all", "none"])]
    pub(super) probe_executables: Option<String>,
    /// Ask these debuginfod servers for names and lines that no file here has: URLs with blanks between them [default: $DEBUGINFOD_URLS].
    /// What is on its way at the end is there for the next run
    #[arg(long, value_name = "URLS", value_parser = urls)]
    pub(super) debuginfod: Option<String>,
    /// Serve the API there meanwhile, for sampler --connect: unix:PATH or tcp:127.0.0.1:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// Sample inside the program, by a preloaded library: some 2 ns for malloc and free together instead of a microsecond.
    /// Static and setuid programs are not seen
    #[arg(long, conflicts_with_all = ["strategy", "one_in", "samples_per_second"])]
    pub(super) preload: bool,
    /// Run COMMAND as this user [default: under sudo, who called it; else root]
    #[arg(long, value_name = "USER", conflicts_with = "as_root")]
    pub(super) user: Option<String>,
    /// Run COMMAND as root, under sudo too
    #[arg(long)]
    pub(super) as_root: bool,
    /// alloc: what was allocated; live: what was held at the end; peak: at the largest total; may be
    /// repeated in text [default: in text alloc and live, else alloc]
    #[arg(long = "kind", value_enum, value_name = "KIND")]
    pub(super) kinds: Vec<KindName>,
    /// Confidence of every interval, between 0 and 1
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    #[arg(allow_negative_numbers = true)]
    pub(super) confidence: Confidence,
    /// How samples become estimates: weighted, failed-trials or calibrated [default: weighted]
    #[arg(long, value_name = "NAME", value_parser = Estimator::parse)]
    pub(super) estimator: Option<Estimator>,
    /// Keep the N largest stacks; in text, N functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(super) top: Option<u32>,
    /// In text, the largest call stacks too
    #[arg(long)]
    pub(super) stacks: bool,
    /// Output format [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub(super) format: Option<Format>,
    /// Write the profile to this file, whole or not at all [default: standard error]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl RunVerb {
    /// Checks that the options go together. The error is one line.
    pub(crate) fn check(&self, json: bool, connects: bool) -> Result<(), String> {
        if connects {
            return Err("run starts a samplerd of its own (leave out --connect)".to_owned());
        }
        if json && self.format(json) != Format::Json {
            let error = "--json and --format name different formats (give one of them)";
            return Err(error.to_owned());
        }
        let of_held = self.kinds.iter().map(|kind| Kind::from(*kind));
        if let Some(kind) =
            of_held.filter(|kind| matches!(kind, Kind::Live | Kind::Peak)).find(|_| self.no_live)
        {
            return Err(format!("--kind {} needs frees (leave out --no-live)", kind.name()));
        }
        if self.kinds.len() > 1 && self.format(json) != Format::Text {
            return Err("several --kind are for text (give one)".to_owned());
        }
        let format = self.format(json);
        if !format.is_text() && self.file().is_none() {
            return Err(format!("--format {} is binary (give -o FILE)", format.name()));
        }
        Ok(())
    }

    /// Returns the requested format. `--json` is short for `--format json`.
    pub(super) fn format(&self, json: bool) -> Format {
        match self.format {
            None if json => Format::Json,
            None => Format::Text,
            Some(format) => format,
        }
    }

    /// Returns the file for the profile; `None`: standard error.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|path| path.as_os_str() != "-")
    }

    /// Returns the kinds of profiles that are written at the end.
    pub(super) fn kinds(&self, json: bool) -> Vec<Kind> {
        let text = self.format(json) == Format::Text;
        match self.kinds.as_slice() {
            [] if text && !self.no_live => vec![Kind::Alloc, Kind::Live],
            [] => vec![Kind::Alloc],
            kinds => kinds.iter().map(|kind| Kind::from(*kind)).collect(),
        }
    }

    /// Returns the request for a profile of everything.
    pub(super) fn request(&self, kind: Kind) -> v1::GetProfileRequest {
        v1::GetProfileRequest {
            kind: kind_to_wire(kind).into(),
            confidence: self.confidence.level(),
            estimator: self.estimator.map_or("", Estimator::name).to_owned(),
            ..v1::GetProfileRequest::default()
        }
    }

    /// Returns the arguments of samplerd.
    pub(super) fn of_daemon(&self) -> Vec<String> {
        let some = |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
        let given = [
            some("--interval", self.interval.map(|bytes| bytes.to_string())),
            some("--strategy", self.strategy.clone()),
            some("--one-in", self.one_in.map(|calls| calls.to_string())),
            some("--samples-per-second", self.samples_per_second.map(|of| of.to_string())),
            some("--max-samples-per-process", self.max_samples_per_process.map(Limits::text)),
            some("--unwind", self.unwind.clone()),
            some("--probe-engine", self.probe_engine.clone()),
            some("--probe-executables", self.probe_executables.clone()),
            some("--debuginfod", self.debuginfod.clone()),
            Some(if self.no_live { "--no-live" } else { "--keep-held" }.to_owned()),
            self.preload.then(|| "--samplers-only".to_owned()),
        ];
        given.into_iter().flatten().collect()
    }
}

/// URLs that samplerd will take.
fn urls(text: &str) -> Result<String, String> {
    Servers::parse(text).map(|_| text.to_owned())
}

/// Of the copy of this program that becomes COMMAND; see [`super::starter`].
#[derive(Group)]
pub(crate) struct StartVerb {
    /// The parent's descriptor that says go
    #[arg(long)]
    pub(super) go: i32,
    /// The parent's descriptor that the names of files are written to which will be mapped
    #[arg(long)]
    pub(super) report: i32,
    /// User id to take
    #[arg(long)]
    pub(super) uid: Option<u32>,
    /// Group id to take
    #[arg(long)]
    pub(super) gid: Option<u32>,
    /// Library to preload
    #[arg(long)]
    pub(super) preload: Option<PathBuf>,
    /// Mean bytes between samples of the preloaded library
    #[arg(long)]
    pub(super) preload_interval: Option<u64>,
    /// Further groups
    #[arg(long, value_delimiter = ',')]
    pub(super) groups: Vec<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}
