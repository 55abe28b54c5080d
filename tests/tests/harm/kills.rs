//! Many kills of samplerd, at random times and at each stage of its life.
//! Run with `cargo test -p sampler-tests --test harm -- --ignored kills --nocapture`.

use super::killed::{Target, changes_probes, children, do_probes_change};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::{Daemon, build, wait};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const KILLS: usize = 300;
const ENGINES: [&str; 3] = ["session", "multi", "perf"];
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// samplerd attaches and serves within this time.
const START_MS: u64 = 1500;
/// samplerd removes probes within this time after the cause.
const CHANGE: Duration = Duration::from_secs(2);
/// The kernel's message about a probe that stays for good.
const LEAK: &str = "leaking uprobe";

/// When samplerd is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// At a random time after its start.
    Start,
    /// While it attaches its first probes.
    FirstAttach,
    /// At a random time while it samples.
    Running,
    /// While all probes are removed at its end.
    End,
    /// While the probes of a process that has exited are removed.
    ProcessExits,
    /// While the shared probes of a file are removed, after the exit of its last process.
    FileLeft,
}

const STAGES: [Stage; 6] = [
    Stage::Start,
    Stage::FirstAttach,
    Stage::Running,
    Stage::End,
    Stage::ProcessExits,
    Stage::FileLeft,
];

/// Counts the probes that the kernel has leaked since a marker in its log.
struct KernelLog {
    marker: String,
}

impl KernelLog {
    fn mark() -> Result<KernelLog> {
        let marker = format!("sampler-tests kills {} {}", std::process::id(), fastrand::u64(..));
        fs::write("/dev/kmsg", format!("{marker}\n")).context("write to /dev/kmsg")?;
        Ok(KernelLog { marker })
    }

    fn leaks(&self) -> Result<usize> {
        let output = Command::new("dmesg").output().context("run dmesg")?;
        let log = String::from_utf8_lossy(&output.stdout);
        // The kernel drops the oldest lines, and with them the marker.
        let since = log.rsplit_once(&self.marker).map_or(&log[..], |(_, since)| since);
        Ok(since.lines().filter(|line| line.contains(LEAK)).count())
    }
}

fn pause(most_ms: u64) {
    wait::pass(Duration::from_micros(fastrand::u64(..=most_ms * 1000)));
}

/// Waits until probes are attached or removed, and a little more. The change may be too short to be
/// observed.
fn near_change(daemon: &Daemon) -> Result<()> {
    do_probes_change(daemon, CHANGE)?;
    pause(4);
    Ok(())
}

/// Starts samplerd without waiting for it, and kills it.
fn kill_at_start(pid: u32, engine: &str, at_attach: bool) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(build::program("samplerd")?);
    let socket = format!("unix:{}", directory.path().join("socket").display());
    command.args(["--listen", &socket, "--probe-engine", engine, "--pid", &pid.to_string()]);
    command.stderr(fs::File::create(directory.path().join("log"))?);
    let daemon = Child::start("samplerd", &mut command)?;
    if !at_attach {
        pause(START_MS);
        return Ok(());
    }
    let start = Instant::now();
    let is_attaching = || children(daemon.pid()).is_ok_and(|of| of.into_iter().any(changes_probes));
    // The change may be too short to be observed.
    while !is_attaching() && start.elapsed() < 4 * Duration::from_millis(START_MS) {}
    pause(4);
    Ok(())
}

/// Kills samplerd once. The caller checks whether probes stay.
fn kill_once(target: &Target, engine: &str, stage: Stage) -> Result<()> {
    let pid = target.pid();
    let start = |pids: &[u32], more: &[&str]| {
        Daemon::start(pids, &[&["--probe-engine", engine], more].concat())
    };
    match stage {
        Stage::Start => kill_at_start(pid, engine, false),
        Stage::FirstAttach => kill_at_start(pid, engine, true),
        Stage::Running => {
            let _killed = start(&[pid], &[])?;
            pause(400);
            Ok(())
        }
        Stage::End => {
            let mut killed = start(&[pid], &[])?;
            killed.child().signal(SIGTERM)?;
            near_change(&killed)?;
            Ok(())
        }
        Stage::ProcessExits => {
            let other = target.another()?;
            let killed = start(&[pid, other.pid()], &[])?;
            other.signal(SIGKILL)?;
            near_change(&killed)?;
            Ok(())
        }
        Stage::FileLeft => {
            let other = Target::start("idle")?;
            let killed = start(&[pid, other.pid()], &["--follow"])?;
            let libc = other.end();
            near_change(&killed)?;
            drop(killed);
            Target::start_with(libc, "idle")?.until_clean("a new process of a file that was left")
        }
    }
}

#[test]
#[ignore = "it takes some ten minutes"]
fn kills_at_every_stage_leave_no_probe() -> Result<()> {
    let log = KernelLog::mark()?;
    let mut target = Target::start("idle")?;
    let mut leaks = Vec::new();
    for number in 0..KILLS {
        let (engine, stage) = (ENGINES[number % 3], STAGES[number / 3 % STAGES.len()]);
        let what = format!("kill {number}, {engine}, {stage:?}");
        let killed = kill_once(&target, engine, stage).and_then(|()| target.until_clean(&what));
        let (leaked, known) = (log.leaks()?, leaks.len());
        if killed.is_err() || leaked > known {
            eprintln!("{what}: {leaked} leaks in the kernel's log; {killed:?}");
            leaks.resize(leaked.max(known + 1), what);
            // The probes of this target stay, so the test needs another target.
            target = Target::start("idle")?;
        }
        if number % 30 == 29 {
            eprintln!("{} kills, {} leaks", number + 1, leaks.len());
        }
    }
    eprintln!("{KILLS} kills, {} leaks", leaks.len());
    ensure!(leaks.is_empty(), "{} of {KILLS} kills left probes: {leaks:#?}", leaks.len());
    Ok(())
}
