//! Children of one parent (`workloads/siblings.c`) draw random numbers of their own: otherwise all
//! would sample the same calls.

use crate::{Daemon, Workload};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Number of children. At [`INTERVAL`] each has 310 samples, with a standard deviation of 18.
pub const CHILDREN: &str = "8";
/// Mean bytes between samples.
pub const INTERVAL: u64 = 64 << 10;

/// Checks that the children of a program have different numbers of samples.
///
/// # Errors
/// If they have not, or samplerd fails with these `options`.
pub fn sample_different_calls(mut parent: Workload, options: &[&str]) -> Result<()> {
    let interval = INTERVAL.to_string();
    let options = [options, &["--follow", "--interval", &interval]].concat();
    let daemon = Daemon::start(&[parent.pid()], &options)?;
    parent.go()?;
    parent.truth()?;
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    let is_child = |of: &&Value| of["pid"].as_u64() != Some(parent.pid().into());
    let samples = |of: &Value| of["samples"].as_u64();
    let mut counts: Vec<u64> = processes.iter().filter(is_child).filter_map(samples).collect();
    ensure!(counts.len().to_string() == CHILDREN, "{counts:?}: {listed}");
    ensure!(counts.iter().all(|count| (200..450).contains(count)), "{counts:?}");
    counts.sort_unstable();
    counts.dedup();
    // Two counts are equal with a probability of 1.6 %. At most two different ones among eight have
    // a probability below 1e-7.
    ensure!(counts.len() > 2, "siblings sample alike: {counts:?}");
    parent.exit()?;
    daemon.stop()
}
