//! CPU time of processes, by the scheduler's clock.

use anyhow::{Context, Result};
use sampler_tests::usage;
use std::fs;

/// User and system time of all threads that `pid` has now, seconds. Exact (ns) once they wait or have ended; the time
/// of threads that are gone is missing, which the workloads' never are.
///
/// # Errors
/// If it is gone.
pub(crate) fn threads(pid: u32) -> Result<f64> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0.0;
    for thread in fs::read_dir(&directory).with_context(|| format!("list {directory}"))? {
        let path = thread.with_context(|| format!("list {directory}"))?.path().join("schedstat");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let time = text.split(' ').next().and_then(|time| time.parse::<f64>().ok());
        sum += time.with_context(|| format!("parse {}", path.display()))?;
    }
    Ok(sum / 1e9)
}

/// User and system time of a profiler's processes, seconds, to a tick (10 ms): `pid` and its children.
pub(crate) fn tree(pid: u32) -> f64 {
    let own = usage::processor_seconds(pid).unwrap_or(0.0);
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    own + children.map(tree).sum::<f64>()
}

/// The letter of a process' state.
///
/// # Errors
/// If it is gone.
pub(crate) fn state(pid: u32) -> Result<char> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let after = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    after.with_context(|| format!("parse {path}"))
}
