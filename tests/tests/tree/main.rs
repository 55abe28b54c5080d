//! A tree of processes is followed from each one's first allocation. Exact totals are the truth of
//! every process, and nobody outside is counted. `sampler run` does the same for a program that it
//! starts, and leaves nothing behind.

mod follow;
mod run;

use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Objects and bytes that each process reports, by pid.
pub(crate) type Truth = BTreeMap<u64, (u64, u64)>;

/// Adds a line `PID OBJECTS BYTES`.
pub(crate) fn add(truth: &mut Truth, line: &str) -> Result<()> {
    let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
    let numbers = numbers.with_context(|| format!("no line of a process: {line:?}"))?;
    let [pid, objects, bytes] = numbers[..] else { anyhow::bail!("three numbers: {line:?}") };
    let of = truth.entry(pid).or_default();
    *of = (of.0 + objects, of.1 + bytes);
    Ok(())
}

pub(crate) fn sum(truth: &Truth) -> (u64, u64) {
    truth.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}
