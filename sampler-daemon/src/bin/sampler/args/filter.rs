//! Options that say which profile is requested: processes, time, ages and sizes.

use super::{KindName, Select, confidence, unix_ns};
use clap::Args as Group;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::Kind;
use sampler_common::units::{Time, parse_bytes, parse_duration, parse_time};
use sampler_daemon::rpc::convert::kind_to_wire;
use sampler_daemon::rpc::v1;
use std::time::Duration;

/// Which profile is asked for.
#[derive(Group)]
pub(crate) struct Filter {
    #[command(flatten)]
    pub(crate) select: Select,
    /// alloc: allocated since attach; live: still held; peak: held at the largest live total since attach;
    /// mapped: mapped by programs themselves, not by malloc
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
    /// With kind live or mapped: only what is held for TIME or longer
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) min_age: Option<Duration>,
    /// With kind live or mapped: only what is held for TIME at most
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) max_age: Option<Duration>,
    /// Only requests of SIZE or more, rounded outward to 1/32 of a power of two
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) min_size: Option<u64>,
    /// Only requests of SIZE or less
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) max_size: Option<u64>,
    /// Keep the N largest stacks; in text, N functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top: Option<u32>,
}

impl Filter {
    /// Checks that the options go together. The error is one line.
    pub(super) fn check(&self) -> Result<(), String> {
        let kind = Kind::from(self.kind).name();
        let times = self.last.is_some() || self.since.is_some() || self.until.is_some();
        if (self.min_age.is_some() || self.max_age.is_some()) && !matches!(kind, "live" | "mapped")
        {
            return Err(format!(
                "--min-age and --max-age are about blocks that are held, not kind {kind} (add --kind live)"
            ));
        }
        if self.estimator.is_some() && kind == "mapped" {
            return Err("--kind mapped is counted, not estimated (leave out --estimator)".into());
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

    /// Whether an option other than those for processes narrows the profile: kind, estimator, time,
    /// age or size.
    pub(super) fn is_narrowed(&self) -> bool {
        let times = self.last.is_some() || self.since.is_some() || self.until.is_some();
        let ages = self.min_age.is_some() || self.max_age.is_some();
        let sizes = self.min_size.is_some() || self.max_size.is_some();
        let kind = Kind::from(self.kind) != Kind::Alloc;
        kind || self.estimator.is_some() || times || ages || sizes
    }

    /// Makes the request, for the `top` largest stacks or for all.
    pub(crate) fn request(&self, top: Option<u32>) -> v1::GetProfileRequest {
        let kind = kind_to_wire(self.kind.into());
        let nanoseconds = |of: Option<Duration>| of.map_or(0, |of| of.as_nanos() as u64);
        let now = unix_ns();
        // 0 means no bound in the protocol. A bound at or before 0 becomes one nanosecond.
        let time = |of: Option<Time>| of.map_or(0, |of| of.unix_ns(now).max(1));
        v1::GetProfileRequest {
            kind: kind.into(),
            pids: self.select.pids.clone(),
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
            selector: self.select.without_pids(),
            functions: 0,
        }
    }
}
