//! Cost of samplerd in addition to its probes, for a python3 that never stops allocating.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::spread::Spread;
use sampler_tests::usage::{processor_seconds, resident};
use sampler_tests::{Daemon, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Intended samples a second.
const SAMPLES_PER_SECOND: f64 = 1000.0;
/// Period in which processor time is counted.
const COUNTED_PERIOD: Duration = Duration::from_secs(12);
/// Period in which the target's rate is measured, to choose the interval.
const RATE_PERIOD: Duration = Duration::from_secs(2);
/// How many fresh daemons are asked for their first profile.
const STARTS: usize = 5;

/// Measured costs.
pub(crate) struct Costs {
    /// Mean bytes between samples.
    pub(crate) interval_bytes: u64,
    /// Samples a second.
    pub(crate) samples_per_second: f64,
    /// Calls of the malloc family a second.
    pub(crate) allocations_per_second: f64,
    /// Processor time of samplerd alone, in percent of one processor.
    pub(crate) cpu_percent: f64,
    /// Seconds in which processor time was counted.
    pub(crate) seconds: f64,
    /// Percent of the stacks that were unwound to their root.
    pub(crate) complete_percent: f64,
    /// Milliseconds from `ready` to the end of the first `sampler profile`.
    pub(crate) first_profile_ms: Spread,
    /// Resident memory, bytes.
    pub(crate) resident_bytes: u64,
    /// Bytes of the ring's double mapping, included in `resident_bytes`.
    pub(crate) ring_bytes: u64,
}

/// Runs python3 and samplerd.
///
/// # Errors
/// If python3 or samplerd does not start or stops early.
pub(crate) fn measure() -> Result<Costs> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/allocate.py");
    // The distribution's python3 is preferred to one that a user has built.
    let installed = Path::new("/usr/bin/python3");
    let python = if installed.exists() { installed } else { Path::new("python3") };
    let mut command = Command::new(python);
    let mut target = Child::start("python3", command.arg(script).env("PYTHONMALLOC", "malloc"))?;
    ensure!(target.line()? == "running", "python3 does not start");
    let first_profile_ms = first_profiles(target.pid())?;
    let daemon = Daemon::start(&[target.pid()], &[])?;
    let before = allocated(&daemon)?;
    let start = Instant::now();
    wait::pass(RATE_PERIOD);
    let bytes_per_second =
        (allocated(&daemon)?.bytes - before.bytes) / start.elapsed().as_secs_f64();
    let interval_bytes = ((bytes_per_second / SAMPLES_PER_SECOND) as u64).max(1);
    daemon.sampler(&["set", "--interval", &interval_bytes.to_string()])?.success("sampler set")?;
    let before = allocated(&daemon)?;
    let busy = processor_seconds(daemon.pid())?;
    let start = Instant::now();
    wait::pass(COUNTED_PERIOD);
    let busy = processor_seconds(daemon.pid())? - busy;
    let seconds = start.elapsed().as_secs_f64();
    let after = allocated(&daemon)?;
    let (resident_bytes, ring_bytes) = resident(daemon.pid())?;
    daemon.stop()?;
    Ok(Costs {
        interval_bytes,
        samples_per_second: (after.samples - before.samples) / seconds,
        allocations_per_second: (after.objects - before.objects) / seconds,
        cpu_percent: busy / seconds * 100.0,
        seconds,
        complete_percent: (after.complete - before.complete) / (after.samples - before.samples)
            * 100.0,
        first_profile_ms,
        resident_bytes,
        ring_bytes,
    })
}

fn first_profiles(pid: u32) -> Result<Spread> {
    let first = |_| {
        let daemon = Daemon::start(&[pid], &[])?;
        let ready = Instant::now();
        let profile = daemon.sampler(&["profile"])?.success("sampler profile")?;
        let time_ms = ready.elapsed().as_secs_f64() * 1000.0;
        ensure!(!profile.stdout.is_empty(), "the first profile is empty");
        daemon.stop()?;
        Ok(time_ms)
    };
    Ok(Spread::of((0..STARTS).map(first).collect::<Result<Vec<f64>>>()?))
}

/// Counters of the daemon.
struct Allocated {
    bytes: f64,
    objects: f64,
    samples: f64,
    complete: f64,
}

fn allocated(daemon: &Daemon) -> Result<Allocated> {
    let status = daemon.status()?;
    let count = |value: &Value, what: &str| {
        value.as_f64().with_context(|| format!("status has no {what}: {status}"))
    };
    let process = daemon.json("ps")?["processes"][0].take();
    Ok(Allocated {
        bytes: count(&process["exact"]["alloc_space"], "exact.alloc_space")?,
        objects: count(&process["exact"]["alloc_objects"], "exact.alloc_objects")?,
        samples: sampler_tests::daemon::outcome(&status, "sampled") as f64,
        complete: sampler_tests::daemon::outcome(&status, "unwind_complete") as f64,
    })
}
