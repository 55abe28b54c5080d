//! `samplerd --export parquet:FOLDER`: SQL engines find the moments of the profile in the tables,
//! and the statements of `docs/fleet` make its intervals.

mod clickhouse;
mod daemon;
mod names;
mod place;
mod share;
mod simulated;

use anyhow::{Context as _, Result, ensure};
use sampler_common::estimate::{Confidence, Moments, weighted};
use sampler_tests::fleet::{Row, number};
use sampler_tests::{Daemon, wait};

/// Largest difference between an interval's end in SQL and the product's, in widths of the
/// interval: with ten samples or more, and with fewer.
const NEAR: (f64, f64) = (0.01, 0.06);

/// Checks the interval of a row against the product's.
fn is_interval_of(row: &Row, moments: &Moments) -> Result<()> {
    let expected = weighted(moments, 1.0, Confidence::DEFAULT);
    let ends = [number(row, "low")?, number(row, "high")?];
    let width = expected.high - expected.low;
    let near = width * if moments.samples < 10 { NEAR.1 } else { NEAR.0 } + 1.0;
    let differences = [ends[0] - expected.low, ends[1] - expected.high];
    ensure!(differences.iter().all(|of| of.abs() <= near), "{row:?} is not {expected:?}");
    Ok(())
}

/// Waits until further windows are in the tables: the window that is being made may be older than
/// what the program did last.
fn later_windows(daemon: &Daemon, count: u64) -> Result<()> {
    let sent =
        || -> Result<u64> { daemon.status()?["exports"][0]["sent"].as_u64().context("no counter") };
    let before = sent()?;
    wait::until("further windows", || Ok((sent()? >= before + count).then_some(())))
}
