//! `samplerd --export parquet:FOLDER`: SQL engines find the moments of the profile in the tables,
//! and the statements of `docs/fleet` make its intervals.

mod clickhouse;
mod daemon;
mod names;
mod place;
mod share;
mod simulated;

use anyhow::{Result, ensure};
use sampler_common::estimate::{Confidence, Moments, weighted};
use sampler_tests::fleet::{Row, number};

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
