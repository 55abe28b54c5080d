//! Options of the verbs.

use super::{
    Filter, Frames, SampledKind, Select, bytes_or_none, confidence, period, samples_per_second,
};
use crate::diff::Source;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as Group, ValueEnum};
use clap_complete::Shell;
use sampler_common::encode::Format;
use sampler_common::estimate::Confidence;
use sampler_common::profile::Kind;
use sampler_common::sampling::Strategy;
use sampler_common::units::{parse_bytes, parse_duration, parse_interval};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Group)]
pub(crate) struct ProfileVerb {
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) frames: Frames,
    /// In text, the largest call stacks too
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Output format [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
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
pub(crate) struct FlamegraphVerb {
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) frames: Frames,
    /// What the width of a frame stands for
    #[arg(long, value_enum, default_value = "bytes")]
    pub(crate) measure: MeasureName,
    /// Write to this file, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MeasureName {
    /// Bytes of the kind
    Bytes,
    /// Objects of the kind
    Objects,
    /// Bytes times the seconds that they were held, since attach
    ByteSeconds,
}

#[derive(Group)]
pub(crate) struct LeaksVerb {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Growth over the last TIME (60s, 10m); longer than samplerd has been there: since attach [default: half
    /// of the time since attach]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) over: Option<Duration>,
    /// Confidence of every interval, and of all stacks' bounds together, between 0 and 1
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = confidence)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) confidence: Confidence,
    /// Show N stacks [default: 10 in text, all in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: Option<u32>,
}

#[derive(Group)]
pub(crate) struct LifetimesVerb {
    #[command(flatten)]
    pub(crate) select: Select,
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
    #[command(flatten)]
    pub(crate) select: Select,
}

#[derive(Group)]
pub(crate) struct DiffVerb {
    /// A saved json profile; processes: pid:4121, comm:'cc1*', exe:PATH or cgroup:nginx.service;
    /// the last 5m; or a window, 10m..5m. A window of some processes: pid:4121@5m
    pub(crate) a: Source,
    /// As A
    pub(crate) b: Source,
    #[command(flatten)]
    pub(crate) select: Select,
    /// alloc: what was allocated; live: what is still held; peak: what was held when most was [default: that of a saved profile, else alloc]
    #[arg(long, value_enum)]
    pub(crate) kind: Option<SampledKind>,
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
    /// Draw a flame graph: as wide as what is more of A and B, colored where it changed by more than chance
    #[arg(long, conflicts_with = "top")]
    pub(crate) svg: bool,
    /// Write to this file, whole or not at all
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
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

#[derive(Group)]
pub(crate) struct SymbolizeVerb {
    /// The folder that hosts write to with samplerd --export
    #[arg(value_name = "parquet:FOLDER", value_parser = tables)]
    pub(crate) folder: PathBuf,
}

fn tables(text: &str) -> Result<PathBuf, &'static str> {
    let path = text.strip_prefix("parquet:").filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or("is no folder of tables (give parquet:FOLDER)")
}

#[derive(Group)]
pub(crate) struct CompletionsVerb {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Group)]
pub(crate) struct ManVerb {
    /// Where to: a directory, which is made if need be
    pub(crate) directory: PathBuf,
}

impl FlamegraphVerb {
    /// Checks that the options go together. The error is one line.
    pub(super) fn check(&self, json: bool) -> Result<(), String> {
        if json {
            return Err("a flame graph is a picture (for json: sampler profile --json)".into());
        }
        if self.measure == MeasureName::ByteSeconds
            && (self.filter.is_narrowed() || self.frames.is_given())
        {
            return Err(
                "--measure byte-seconds is of all blocks since attach (choose processes, --confidence and --top only)"
                    .into(),
            );
        }
        Ok(())
    }
}

impl PlanVerb {
    /// Returns interval and bytes. Without `--compare` both are given.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (self.interval.unwrap_or(0), self.bytes.unwrap_or(0))
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KindName {
    Alloc,
    Live,
    Peak,
    Mapped,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Kind {
        match name {
            KindName::Alloc => Kind::Alloc,
            KindName::Live => Kind::Live,
            KindName::Peak => Kind::Peak,
            KindName::Mapped => Kind::Mapped,
        }
    }
}

/// Parses the name of a format.
pub(crate) fn format_parser() -> impl TypedValueParser<Value = Format> {
    let value = |format: Format| PossibleValue::new(format.name()).help(format.purpose());
    PossibleValuesParser::new(Format::ALL.map(value))
        .try_map(|name| Format::parse(&name).ok_or("is no format"))
}

impl ProfileVerb {
    /// Returns the requested format. `--json` is short for `--format json`.
    pub(crate) fn format(&self, json: bool) -> Format {
        match self.format {
            None if json => Format::Json,
            None => Format::Text,
            Some(format) => format,
        }
    }
}
