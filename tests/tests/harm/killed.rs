//! A samplerd that is killed leaves nothing behind: each instruction is again what the file says.

use anyhow::{Context, Result, bail, ensure};
use sampler_tests::child::{Child, kill};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{Daemon, breakpoints, build, wait};
use std::fs;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Kills while probes are taken off at the end: before there was a guardian about four in ten left some.
const KILLS_AT_THE_END: u32 = 12;
/// Kills while the probes of a window come or go.
const KILLS_IN_WINDOWS: u32 = 6;
/// A probe that is there so long after the kill stays for good.
const STAYS: Duration = Duration::from_secs(10);

/// A program with a C library that no other process has, in which a probe that stays is seen.
struct Target {
    libc: OwnLibc,
    program: Child,
}

impl Target {
    /// `manner` says how it allocates (`workloads/budget.c`).
    fn start(manner: &str) -> Result<Target> {
        let libc = OwnLibc::copy()?;
        let mut command = libc.command(&build::compile("budget.c", &[])?);
        let mut program = Child::start("budget", command.arg(manner))?;
        ensure!(program.line()? == "ready", "no ready line");
        Ok(Target { libc, program })
    }

    fn probes(&self) -> Result<usize> {
        breakpoints::changed(self.program.pid(), &self.libc.path()?)
    }

    fn until_probed(&self) -> Result<()> {
        wait::until("probes", || Ok((self.probes()? > 0).then_some(())))
    }

    /// Waits until no probe is left.
    fn until_clean(&self, when: &str) -> Result<()> {
        let look = || Ok((self.probes()? == 0).then_some(()));
        wait::until_deadline(&format!("the probes to go: {when}"), STAYS, look)
    }
}

/// Processes whose parent is this one.
fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    list.split_ascii_whitespace().map(|pid| pid.parse().context("parse a pid")).collect()
}

/// Whether a thread of a process waits in close(2), or in bpf(2) for a link.
fn changes_probes(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut calls = threads.filter_map(|of| fs::read_to_string(of.path().join("syscall")).ok());
    calls.any(|call| call.starts_with("3 ") || call.starts_with("321 0x1c "))
}

/// Waits until samplerd or a child of it makes or closes links, without a pause: it takes a few milliseconds.
fn until_probes_change(daemon: &Daemon) -> Result<()> {
    let mut all = children(daemon.pid())?;
    all.push(daemon.pid());
    let start = Instant::now();
    while !all.iter().any(|pid| changes_probes(*pid)) {
        if start.elapsed() > wait::DEADLINE {
            bail!("no link is made or closed: {}", daemon.log());
        }
    }
    Ok(())
}

#[test]
fn a_kill_while_probes_are_taken_off_leaves_none() -> Result<()> {
    let target = Target::start("idle")?;
    for number in 0..KILLS_AT_THE_END {
        let mut daemon = Daemon::start(&[target.program.pid()], &[])?;
        ensure!(target.probes()? > 0, "nothing is probed: {}", daemon.log());
        daemon.child().signal(SIGTERM)?;
        until_probes_change(&daemon)?;
        // SIGKILL
        drop(daemon);
        target.until_clean(&format!("kill {number}"))?;
    }
    Ok(())
}

#[test]
fn a_kill_in_a_window_leaves_none() -> Result<()> {
    let target = Target::start("steady")?;
    for number in 0..KILLS_IN_WINDOWS {
        let daemon = Daemon::start(&[target.program.pid()], &["--windows", "50%"])?;
        target.until_probed()?;
        until_probes_change(&daemon)?;
        drop(daemon);
        target.until_clean(&format!("kill {number}"))?;
    }
    Ok(())
}

/// Whoever is killed without warning, or with all of its group.
#[test]
fn a_kill_while_it_samples_leaves_none_on_every_engine() -> Result<()> {
    let target = Target::start("idle")?;
    for engine in ["session", "multi", "perf"] {
        let daemon = Daemon::start(&[target.program.pid()], &["--probe-engine", engine])?;
        ensure!(target.probes()? > 0, "nothing is probed: {}", daemon.log());
        drop(daemon);
        target.until_clean(engine)?;
    }
    Ok(())
}

/// Without its guardian it would see nothing any more: it says so, and ends.
#[test]
fn a_guardian_that_is_killed_takes_the_probes_with_it() -> Result<()> {
    let target = Target::start("idle")?;
    let mut daemon = Daemon::start(&[target.program.pid()], &[])?;
    let guardians = children(daemon.pid())?;
    let [guardian] = guardians[..] else { bail!("children of samplerd: {guardians:?}") };
    kill(guardian, SIGTERM)?;
    ensure!(daemon.status().is_ok() && target.probes()? > 0, "SIGTERM was not for the guardian");
    kill(guardian, SIGKILL)?;
    target.until_clean("the guardian was killed")?;
    let status = daemon.child().wait()?;
    let log = daemon.log();
    ensure!(status.code() == Some(1) && log.contains("the probe guardian has ended"), "{log}");
    Ok(())
}
