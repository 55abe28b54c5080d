//! `cargo xtask bench`: the measurements behind the figures in the README.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{ebpf, packages, preload, step};

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Cost of a probe hit.
    Probe,
    /// Accuracy and cost of shared counters.
    Counters,
    /// Cost of sampling decisions.
    Draws,
    /// Overhead and samples per second, by the sampling interval.
    Intervals,
    /// Cost of many processes.
    Machine,
    /// Cost of the daemon itself.
    Daemon,
    /// Other profilers on real programs.
    Tools,
    /// Cost of the preloaded library.
    Preload,
    /// Cost of Python frames.
    Python,
    /// Cost of pushes to backends.
    Export,
}

impl Benchmark {
    fn name(self) -> &'static str {
        match self {
            Benchmark::Probe => "probe",
            Benchmark::Counters => "counters",
            Benchmark::Draws => "draws",
            Benchmark::Intervals => "intervals",
            Benchmark::Machine => "machine",
            Benchmark::Daemon => "daemon",
            Benchmark::Tools => "tools",
            Benchmark::Preload => "preload",
            Benchmark::Python => "python",
            Benchmark::Export => "export",
        }
    }

    /// Reason why the benchmark needs root, if it does.
    fn needs_root(self) -> Option<&'static str> {
        match self {
            Benchmark::Counters | Benchmark::Draws => None,
            _ => Some("the benchmark attaches probes"),
        }
    }
}

/// Builds what a benchmark measures, and runs it with `arguments`.
///
/// # Errors
/// If something does not build, or if the benchmark fails.
pub(crate) fn run(
    workspace: &Workspace,
    benchmark: Benchmark,
    arguments: &[OsString],
) -> Result<()> {
    let what = format!("bench {}", benchmark.name());
    if let Some(why) = benchmark.needs_root() {
        packages::require_root(why, &what)?;
    }
    packages::ensure(&packages::BUILD)?;
    if benchmark == Benchmark::Tools {
        packages::ensure(&packages::TOOLS)?;
    }
    ebpf::build(workspace, false, false)?;
    step::run("build", workspace.cargo().args(["build", "--release", "--bins", "--workspace"]))?;
    if matches!(benchmark, Benchmark::Preload | Benchmark::Tools) {
        preload::build(workspace)?;
    }
    // `cargo run` of one package would build the others anew, with fewer features of their crates.
    let program = workspace.target.join(format!("release/bench-{}", benchmark.name()));
    step::run(&what, Command::new(program).args(arguments)).map(drop)
}
