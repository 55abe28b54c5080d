//! `cargo xtask simulate`: the table of every pair of strategy and estimator.

use anyhow::Result;

use crate::step;
use crate::workspace::Workspace;

/// First seed, unless another is given.
pub(crate) const SEED: u64 = 1;
/// Runs per line and seed, unless another number is given.
pub(crate) const RUNS: u32 = 2000;

/// Prints the table of `runs` runs for each of the three seeds from `seed` on.
///
/// # Errors
/// If it does not build, or a limit is broken that is known to hold.
pub(crate) fn run(workspace: &Workspace, seed: u64, runs: u32) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--package", "sampler-common", "--example", "simulate", "--"]);
    command.args(["--seed", &seed.to_string(), "--runs", &runs.to_string()]);
    step::run("simulate", &mut command).map(drop)
}
