//! A killed samplerd leaves nothing behind: each instruction is again that of the file.

use anyhow::{Context, Result, bail, ensure};
use sampler_tests::child::{Child, kill};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{Daemon, again, breakpoints, build, wait};
use std::fs;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Number of kills while probes are removed at the end. Before there was a guardian, about four in
/// ten kills left some probes.
const KILLS_AT_THE_END: u32 = 12;
/// How often samplerd may end before the test observes the removal of its probes.
const TRIES: usize = 20;
/// Number of kills while the probes of a window are attached or removed.
const KILLS_IN_WINDOWS: u32 = 6;

/// A program with a private C library, in which a remaining probe can be found.
pub(super) struct Target {
    libc: OwnLibc,
    program: Child,
}

impl Target {
    /// Starts a program that allocates as `manner` says (`workloads/budget.c`).
    pub(super) fn start(manner: &str) -> Result<Target> {
        Target::start_with(OwnLibc::copy()?, manner)
    }

    pub(super) fn start_with(libc: OwnLibc, manner: &str) -> Result<Target> {
        let program = Target::program(&libc, manner)?;
        Ok(Target { libc, program })
    }

    /// Starts another program with the same library.
    pub(super) fn another(&self) -> Result<Child> {
        Target::program(&self.libc, "idle")
    }

    /// Ends the program. Its library stays.
    pub(super) fn end(self) -> OwnLibc {
        self.libc
    }

    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    fn program(libc: &OwnLibc, manner: &str) -> Result<Child> {
        let mut command = libc.command(&build::compile("budget.c", &[])?);
        let mut program = Child::start("budget", command.arg(manner))?;
        ensure!(program.line()? == "ready", "no ready line");
        Ok(program)
    }

    fn probes(&self) -> Result<usize> {
        breakpoints::changed(self.pid(), &self.libc.path()?)
    }

    fn until_probed(&self) -> Result<()> {
        wait::until("probes", || Ok((self.probes()? > 0).then_some(())))
    }

    /// Waits until no probe is left.
    pub(super) fn until_clean(&self, when: &str) -> Result<()> {
        let check = || Ok((self.probes()? == 0).then_some(()));
        wait::until(&format!("the probes to go: {when}"), check)
    }
}

/// Processes whose parent is `pid`.
pub(super) fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    list.split_ascii_whitespace().map(|pid| pid.parse().context("parse a pid")).collect()
}

/// Whether a thread of a process is in close(2), or in bpf(2) or perf_event_open(2) for a link.
pub(super) fn changes_probes(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut calls = threads.filter_map(|of| fs::read_to_string(of.path().join("syscall")).ok());
    calls.any(|call| ["3 ", "321 0x1c ", "298 "].iter().any(|of| call.starts_with(of)))
}

/// Whether samplerd or a child of it makes or closes links within this time, and before it ends.
/// The check polls without a pause: the change takes a few milliseconds, and the test itself may
/// have to wait for a CPU meanwhile.
pub(super) fn do_probes_change(daemon: &Daemon, within: Duration) -> Result<bool> {
    let mut all = children(daemon.pid())?;
    all.push(daemon.pid());
    let start = Instant::now();
    while !all.iter().any(|pid| changes_probes(*pid)) {
        if start.elapsed() > within || has_ended(daemon.pid()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a process has nothing left but its exit status.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[test]
fn a_kill_during_detach_leaves_no_probe() -> Result<()> {
    let target = Target::start("idle")?;
    for number in 0..KILLS_AT_THE_END {
        again::until("a kill in time", TRIES, || {
            let mut daemon = Daemon::start(&[target.pid()], &[])?;
            ensure!(target.probes()? > 0, "nothing is probed: {}", daemon.log());
            daemon.child().signal(SIGTERM)?;
            let is_in_time = do_probes_change(&daemon, wait::DEADLINE)?;
            let log = daemon.log();
            // SIGKILL
            drop(daemon);
            target.until_clean(&format!("kill {number}"))?;
            Ok(if is_in_time { Ok(()) } else { Err(format!("it was over before: {log}")) })
        })?;
    }
    Ok(())
}

#[test]
fn a_kill_in_a_window_leaves_no_probe() -> Result<()> {
    let target = Target::start("steady")?;
    for number in 0..KILLS_IN_WINDOWS {
        let daemon = Daemon::start(&[target.pid()], &["--windows", "50%"])?;
        target.until_probed()?;
        let changes = do_probes_change(&daemon, wait::DEADLINE)?;
        ensure!(changes, "no link is made or closed: {}", daemon.log());
        drop(daemon);
        target.until_clean(&format!("kill {number}"))?;
    }
    Ok(())
}

/// samplerd is killed alone, or with all of its group.
#[test]
fn a_kill_while_sampling_leaves_no_probe_on_every_engine() -> Result<()> {
    let target = Target::start("idle")?;
    for engine in ["session", "multi", "perf"] {
        let daemon = Daemon::start(&[target.pid()], &["--probe-engine", engine])?;
        ensure!(target.probes()? > 0, "nothing is probed: {}", daemon.log());
        drop(daemon);
        target.until_clean(engine)?;
    }
    Ok(())
}

/// Without its guardian samplerd would get no more samples. It says so, and ends.
#[test]
fn a_guardian_that_is_killed_takes_the_probes_with_it() -> Result<()> {
    let target = Target::start("idle")?;
    let mut daemon = Daemon::start(&[target.pid()], &[])?;
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
