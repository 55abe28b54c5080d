//! CPU time of processes, by the scheduler's clock.

use anyhow::{Context, Result};
use std::fs;

/// User plus system time of all present threads of `pid`, seconds. The time is exact (ns) once they
/// wait or have ended. The time of threads that are gone is missing. The workloads' threads are
/// never gone.
///
/// # Errors
/// If the process is gone.
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

/// User plus system time of a profiler's processes, seconds, to a tick (10 ms).
/// The processes are `pid`, its descendants, and descendants that ended and were waited for.
pub(crate) fn tree(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    own_seconds(&stat) + children.map(tree).sum::<f64>()
}

/// Fields 14 to 17 of a stat file: user and system time of a process, and of its children that were
/// waited for.
fn own_seconds(stat: &str) -> f64 {
    // The name may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let ticks = fields.skip(11).take(4).filter_map(|field| field.parse::<f64>().ok());
    // USER_HZ is 100 on every Linux that the benchmark runs on.
    ticks.sum::<f64>() / 100.0
}

/// The letter of a process's state.
///
/// # Errors
/// If the process is gone.
pub(crate) fn state(pid: u32) -> Result<char> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let after = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    after.with_context(|| format!("parse {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_include_exited_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 25 75 20 0 1 0 5";
        assert_eq!(own_seconds(stat), 3.0);
        assert_eq!(own_seconds(""), 0.0);
    }
}
