//! The command line of samplerd.

use clap::{Parser, ValueEnum};
use sampler_common::limits::{DEFAULT_MAX_LIVE, SNAPSHOT_TIERS};
use sampler_common::units;
use sampler_daemon::bpf::ProbeEngine;
use sampler_daemon::rpc::listen;

/// Profiles which code allocates the memory of running processes, and which of it is still held.
///
/// Attaches to the malloc family of the processes, samples allocations, and serves their profile, with a
/// confidence interval on every number, until it is stopped. Ask it with: sampler profile
#[derive(Debug, Parser)]
#[command(
    name = "samplerd",
    version,
    max_term_width = 100,
    after_help = "Example: samplerd --pid $(pidof redis-server) & sampler profile --kind live"
)]
pub(crate) struct Args {
    /// Process to profile (repeatable)
    #[arg(long = "pid", value_name = "PID", required = true, num_args = 1..,
          allow_negative_numbers = true)]
    pub(crate) pids: Vec<u32>,

    /// Mean bytes between samples, 1 to 4GiB; smaller is more exact and costs more
    #[arg(long, value_name = "SIZE", default_value = "512KiB", allow_hyphen_values = true,
          value_parser = |text: &str| units::parse_interval(text))]
    pub(crate) interval: u64,

    /// How stacks are found: by unwind tables from a copy of the stack, or by frame pointers
    #[arg(long, value_enum, default_value_t = Unwind::Dwarf)]
    pub(crate) unwind: Unwind,

    /// Most bytes of stack copied for each sample (4KiB, 8KiB, 16KiB, 32KiB or 64KiB)
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = snapshot,
          allow_hyphen_values = true)]
    pub(crate) snapshot: u32,

    /// Do not probe frees: half the cost, and nothing is known of live memory
    #[arg(long)]
    pub(crate) no_live: bool,

    /// Most live samples held; the interval grows before there are more
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_LIVE, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(16..=1 << 24))]
    pub(crate) max_live: u32,

    /// Kind of probe; by default the best that this kernel has
    #[arg(long, value_enum)]
    pub(crate) probe_engine: Option<Engine>,

    /// Where to serve the API: unix:PATH or tcp:127.0.0.1:PORT
    #[arg(long, value_name = "ADDRESS", default_value = listen::DEFAULT)]
    pub(crate) listen: listen::Address,

    /// Size of the ring buffer between kernel and daemon (a power of two)
    #[arg(long, alias = "ring-bytes", value_name = "SIZE", default_value = "16MiB",
          value_parser = ring, allow_hyphen_values = true)]
    pub(crate) ring: u32,
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

impl From<Engine> for ProbeEngine {
    fn from(engine: Engine) -> ProbeEngine {
        match engine {
            Engine::Session => ProbeEngine::Session,
            Engine::Multi => ProbeEngine::Multi,
            Engine::Perf => ProbeEngine::Perf,
        }
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
