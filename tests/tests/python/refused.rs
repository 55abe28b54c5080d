//! Interpreters whose frames are not shown have a line in `sampler status`.

use super::ALL;
use super::stack::{folded, python, spawn};
use anyhow::{Context, Result, ensure};
use sampler_tests::Daemon;
use sampler_tests::pythons::{self, Python};
use std::process::Command;

/// Checks that the frames of an interpreter stay native, and that `status` says why.
fn check(command: Command, reason: &str) -> Result<()> {
    let mut workload = spawn(command)?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    workload.child().line()?;
    let folded = folded(&daemon)?;
    ensure!(folded.contains("PyEval_EvalCode"), "no native frames: {folded}");
    let frames = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let shown = frames.map(|(frames, _)| frames).find(|frames| !python(frames).is_empty());
    ensure!(shown.is_none(), "a Python frame: {shown:?}");
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(blind_spots.contains(reason), "not {reason:?}: {blind_spots}");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn an_unknown_version_has_native_frames_and_a_line_in_status() -> Result<()> {
    let python = pythons::known()?.into_iter().next().context("no interpreter")?;
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("python3.99");
    std::fs::copy(&python.program, &program).context("copy the interpreter")?;
    check(python.command_of(&program)?, "python3.99: Python 3.99 is not known")
}

/// A free-threaded build says so at the beginning of its runtime. No package has such a build, so
/// another build says so here.
#[test]
fn a_free_threaded_build_is_refused_by_name() -> Result<()> {
    let stating = |python: &Python| ["3.13", "3.14"].contains(&python.version.as_str());
    let Some(python) = pythons::known()?.into_iter().rfind(stating) else {
        eprintln!("NOTICE: NOT TESTED: no interpreter states whether it is free-threaded");
        return Ok(());
    };
    let mut bytes = std::fs::read(&python.program).context("read the interpreter")?;
    // The version follows the magic number. Elsewhere in the file the number is a string.
    let is_runtime = |at: &[u8]| at.starts_with(b"xdebugpy") && at.ends_with(&[3, 0, 0, 0, 0]);
    let runtime = bytes.windows(16).position(is_runtime).context("no runtime")?;
    *bytes.get_mut(runtime + 16).context("the file ends")? = 1;
    let folder = tempfile::tempdir()?;
    let program = folder.path().join(format!("python{}t", python.version));
    std::fs::copy(&python.program, &program).context("copy the interpreter")?;
    std::fs::write(&program, bytes).context("change the interpreter")?;
    check(python.command_of(&program)?, &format!("Python {} is free-threaded", python.version))
}
