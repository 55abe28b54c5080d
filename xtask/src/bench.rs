//! `cargo xtask bench`: the measurements behind the figures in the README.

use std::ffi::OsString;

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{ebpf, packages, step};

/// Runs the probe benchmark with `arguments`: nanoseconds per hit, ours against empty programs.
///
/// # Errors
/// If something does not build, or if the benchmark fails.
pub(crate) fn probe(workspace: &Workspace, arguments: &[OsString]) -> Result<()> {
    packages::require_root("the benchmark attaches probes", "bench probe")?;
    packages::ensure(&packages::BUILD)?;
    ebpf::build(workspace, false, false)?;
    step::run("build", workspace.cargo().args(["build", "--release", "--bins"]))?;
    let mut command = workspace.cargo();
    command.args(["run", "--release", "--package", "sampler-tests", "--bin", "bench-probe", "--"]);
    step::run("bench probe", command.args(arguments)).map(drop)
}
