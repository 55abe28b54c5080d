//! The idle daemon: its resource use while its processes do nothing.

use super::Setup;
use anyhow::{Context, Result};
use sampler_tests::usage::{processor_seconds, resident};
use sampler_tests::wait;
use std::time::{Duration, Instant};

/// Time before the measurement, in which the daemon finishes the work of its start.
const SETTLING_TIME: Duration = Duration::from_secs(5);

/// Resource use of an idle daemon.
pub(crate) struct Rest {
    /// The setup of the daemon.
    pub(crate) setup: Setup,
    /// Percent of one processor.
    pub(crate) cpu_percent: f64,
    /// Duration of the measurement.
    pub(crate) seconds: f64,
    /// Resident memory, bytes.
    pub(crate) resident_bytes: u64,
    /// Bytes of the ring's double mapping, included in `resident_bytes`.
    pub(crate) ring_bytes: u64,
}

/// Measures a daemon with all processes given, and a daemon with the whole machine.
///
/// # Errors
/// If a daemon does not start or ends early.
pub(crate) fn measure(pids: &[u32], time: Duration) -> Result<Vec<Rest>> {
    let one = |setup: Setup| {
        let daemon = setup.start(pids)?.context("a daemon")?;
        wait::pass(SETTLING_TIME);
        let (start, before) = (Instant::now(), processor_seconds(daemon.pid())?);
        wait::pass(time);
        let busy = processor_seconds(daemon.pid())? - before;
        let seconds = start.elapsed().as_secs_f64();
        let (resident_bytes, ring_bytes) = resident(daemon.pid())?;
        daemon.stop()?;
        let cpu_percent = busy / seconds * 100.0;
        Ok(Rest { setup, cpu_percent, seconds, resident_bytes, ring_bytes })
    };
    [Setup::Given, Setup::All].into_iter().map(one).collect()
}
