//! A person at a terminal sees progress; a pipe gets no progress output.

use anyhow::{Context, Result, ensure};
use sampler_tests::terminal::Terminal;
use sampler_tests::{Daemon, Workload, build, wait};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const STOP: i32 = 19;
const CONTINUE: i32 = 18;

#[test]
fn a_slow_profile_shows_its_progress() -> Result<()> {
    let mut workload = Workload::edge(&["stacks"])?;
    let mut daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    workload.truth()?;
    let place = tempfile::tempdir()?;
    let sampler = build::program("sampler")?.display().to_string();
    let (out, errors) = (place.path().join("out"), place.path().join("errors"));

    // samplerd makes no profile while it is stopped.
    daemon.child().signal(STOP)?;
    let script = format!(
        "'{sampler}' --connect '{}' profile --format folded > '{}'",
        daemon.address,
        out.display()
    );
    let mut terminal = Terminal::start((80, 24), &["sh", "-c", &script])?;
    let screen =
        terminal.until("a line", |screen| screen.contains("samplerd makes the profile"))?;
    ensure!(screen.trim_end().lines().count() == 1, "more than a line:\n{screen}");
    let mut piped = Command::new(&sampler)
        .args(["--connect", &daemon.address, "profile", "--format", "folded"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&errors)?)
        .spawn()
        .context("start sampler")?;
    // A client that prints a line prints it within this time.
    wait::pass(Duration::from_secs(1));
    daemon.child().signal(CONTINUE)?;
    ensure!(terminal.code()? == 0);
    terminal.until("that it is erased", |screen| screen.trim().is_empty())?;
    ensure!(fs::read_to_string(&out)?.contains(";main;"), "the profile itself");
    let ended = wait::until("the other one", || Ok(piped.try_wait()?))?;
    ensure!(ended.success() && fs::read(&errors)?.is_empty(), "a pipe got something");
    daemon.stop()
}
