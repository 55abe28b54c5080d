//! Programs that measure the CPU time of their calls, and samplerd's figures for them.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build, preload};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Upper bound of a pair of calls without a probe, nanoseconds.
pub(crate) const UNPROBED_PAIR_NS: f64 = 200.0;

/// A workload with a C library of its own, in a directory that has to stay. Probes of others on the
/// shared library do not slow it down.
pub(crate) struct Own {
    pub(crate) workload: Workload,
    _directory: TempDir,
}

impl Own {
    pub(crate) fn start() -> Result<Own> {
        Own::run(&mut Command::new(build::compile("cost.c", &[])?))
    }

    pub(crate) fn run(command: &mut Command) -> Result<Own> {
        Own::run_in(tempfile::tempdir()?, command)
    }

    fn run_in(directory: TempDir, command: &mut Command) -> Result<Own> {
        fs::copy("/lib/x86_64-linux-gnu/libc.so.6", directory.path().join("libc.so.6"))
            .context("copy the C library")?;
        let command = command.env("LD_LIBRARY_PATH", directory.path());
        Ok(Own { workload: Workload::spawn("the program", command)?, _directory: directory })
    }

    /// The program with a copy of the in-process sampler that samples all allocations. With shared
    /// probes, every process that maps the file pays for traps, too.
    pub(crate) fn preloaded() -> Result<Own> {
        let directory = tempfile::tempdir()?;
        let library = directory.path().join("libsampler_preload.so");
        fs::copy(preload::library()?, &library).context("copy the library")?;
        let mut command = Command::new(build::compile("cost.c", &[])?);
        preload::preload(&mut command, 1, None)?;
        Own::run_in(directory, command.env("LD_PRELOAD", library))
    }

    /// Runs a script of `workloads/`.
    pub(crate) fn script(interpreter: &str, name: &str) -> Result<Own> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name);
        Own::run(Command::new(interpreter).arg(path))
    }

    /// The program with no symbols but those of its own allocator.
    pub(crate) fn stripped(directory: &Path) -> Result<PathBuf> {
        let program = directory.join("cost-own");
        let mut strip = Command::new("strip");
        strip.args(["-K", "own_alloc", "-K", "own_free", "-o"]).arg(&program);
        let status = strip.arg(build::compile("cost.c", &["-static"])?).status()?;
        ensure!(status.success(), "strip: {status}");
        Ok(program)
    }

    /// Writes the specification of that allocator for samplerd. Returns the path of the file in
    /// `directory`.
    pub(crate) fn spec(directory: &Path) -> Result<String> {
        let path = directory.join("spec");
        fs::write(&path, "library */cost*\nmalloc own_alloc\nfree own_free\n")?;
        path.into_os_string().into_string().ok().context("a path in UTF-8")
    }
}

/// CPU time of one block of calls, nanoseconds.
pub(crate) fn block(workload: &mut Workload, case: &str, count: u64) -> Result<f64> {
    workload.child().send(&format!("{case} {count}"))?;
    workload.child().line()?.trim().parse().context("nanoseconds of CPU time")
}

pub(crate) fn number(value: &Value, what: &str) -> Result<f64> {
    value.as_f64().with_context(|| format!("{what} is no number but {value}"))
}

/// A figure as (value, low, high). Checks that the interval is ordered and not empty.
pub(crate) fn range(value: &Value, what: &str) -> Result<(f64, f64, f64)> {
    let of = |key: &str| number(&value[key], &format!("{what} {key}"));
    let (middle, low, high) = (of("value")?, of("low")?, of("high")?);
    ensure!(low <= middle && middle <= high && low < high, "{what}: {value}");
    Ok((middle, low, high))
}

/// The cost of a process in `ps`.
pub(crate) fn cost(daemon: &Daemon, pid: u32) -> Result<Value> {
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    let process = processes.iter().find(|process| process["pid"] == pid);
    Ok(process.with_context(|| format!("pid {pid} is not in {listed}"))?["cost"].clone())
}

/// Whether nobody probes the process `other`, which must not be probed.
pub(crate) fn is_quiet(other: &mut Own) -> Result<bool> {
    Ok(block(&mut other.workload, "pairs", 1000)? / 1000.0 < UNPROBED_PAIR_NS)
}
