//! Nobody reads the messages: standard error is a full device, or a pipe without a reader. The
//! programs still work, and end with their usual exit codes.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::{Workload, build};
use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

/// A file to which every write fails.
fn full() -> Result<File> {
    OpenOptions::new().write(true).open("/dev/full").context("open /dev/full")
}

/// The writing end of a pipe whose reader has gone.
fn unread() -> Result<Stdio> {
    let mut reader = Command::new("true").stdin(Stdio::piped()).spawn()?;
    let end = reader.stdin.take().context("a pipe")?;
    reader.wait()?;
    Ok(end.into())
}

#[test]
fn samplerd_runs_on_when_its_log_cannot_be_written() -> Result<()> {
    build::require_root()?;
    for log in [full()?.into(), unread()?] {
        let mut workload = Workload::edge(&["keep", "1000"])?;
        let directory = tempfile::tempdir()?;
        let listen = format!("unix:{}", directory.path().join("socket").display());
        let mut command = Command::new(build::program("samplerd")?);
        command.args(["--listen", &listen, "--pid", &workload.pid().to_string()]).stderr(log);
        let mut daemon = Child::start("samplerd", &mut command)?;
        ensure!(daemon.line()?.starts_with("ready "));
        workload.go()?;
        workload.truth()?;
        // samplerd prints a message about the exit, too.
        workload.exit()?;
        let mut client = Command::new(build::program("sampler")?);
        client.args(["status", "--connect", &listen]).stdout(Stdio::null());
        ensure!(client.status()?.success(), "samplerd does not answer");
        daemon.signal(15)?;
        let status = daemon.wait()?;
        ensure!(status.success(), "samplerd ended with {status}");
    }
    Ok(())
}

#[test]
fn a_program_that_is_run_has_its_own_exit_code() -> Result<()> {
    build::require_root()?;
    for log in [full()?.into(), unread()?] {
        let mut command = Command::new(build::program("sampler")?);
        command.args(["run", "--", "sh", "-c", "exit 3"]).stderr(log);
        let status = command.status()?;
        ensure!(status.code() == Some(3), "sampler run: {status}");
    }
    let mut command = Command::new(build::program("sampler")?);
    let status = command.args(["ps", "--connect", "unix:/nonexistent"]).stderr(full()?).status()?;
    ensure!(status.code() == Some(1), "sampler ps: {status}");
    Ok(())
}
