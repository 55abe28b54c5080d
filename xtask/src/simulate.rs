//! `cargo xtask simulate`: prints a table of every pair of strategy and estimator.

use anyhow::Result;

use crate::step;
use crate::workspace::Workspace;

/// Default of the first seed.
pub(crate) const SEED: u64 = 1;
/// Default number of runs per line and seed.
pub(crate) const RUNS: u32 = 2000;

/// Prints the table, from `runs` runs for each of the three seeds from `seed` on.
///
/// # Errors
/// If the simulation does not build, or exceeds a limit that is known to hold.
pub(crate) fn run(workspace: &Workspace, seed: u64, runs: u32) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--package", "sampler-common", "--example", "simulate", "--"]);
    command.args(["--seed", &seed.to_string(), "--runs", &runs.to_string()]);
    step::run("simulate", &mut command).map(drop)
}
