//! Accidents that real programs had under a profiler: each program must run to its end as it does
//! alone.

mod bystanders;
mod dispatch;
mod killed;
mod kills;
mod moved;
mod patched;

use anyhow::{Result, ensure};
use sampler_tests::daemon::samplerd;

/// The message of a samplerd that must refuse to attach: one line.
fn refusal(arguments: &[&str]) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let socket = format!("unix:{}", directory.path().join("socket").display());
    let finished = samplerd(&[&["--listen", &socket], arguments].concat())?;
    ensure!(!finished.status.success(), "it attached: {arguments:?}");
    let mut lines = finished.stderr.lines().filter(|line| line.starts_with("samplerd: "));
    let line = lines.next().unwrap_or_default().to_owned();
    ensure!(lines.next().is_none(), "several lines: {}", finished.stderr);
    Ok(line)
}
