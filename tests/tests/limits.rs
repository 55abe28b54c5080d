//! Full tables, small rings, killed processes and killed daemons: numbers stay right or have a
//! note, and no profiled process is harmed.

use anyhow::{Context, Result, ensure};
use sampler_tests::breakpoints::{sites, standing};
use sampler_tests::daemon::{outcome, samplerd};
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use std::time::{Duration, Instant};

/// Confidence of every interval here. Fewer than 100 intervals are compared.
const CONFIDENCE: &str = "0.999999999";

/// A small interval: many samples.
const DENSE: &[&str] = &["--interval", "4KiB"];

fn truth_workload(seed: &str) -> Result<Workload> {
    Workload::start("truth.c", &[seed, "1", "4096"])
}

fn profile(daemon: &Daemon) -> Result<Profile> {
    daemon.profile("live", &["--confidence", CONFIDENCE])
}

/// Checks that exact totals are equal to the byte, and that intervals cover the allocated and live
/// totals.
fn totals_hold(profile: &Profile, truth: &Truth) -> Result<()> {
    let total = truth.total();
    let exact = profile.exact_space;
    ensure!(exact == total.alloc.bytes, "exact {exact} is not {}", total.alloc.bytes);
    for (what, of, bytes) in [
        ("alloc", profile.totals.alloc_space, total.alloc.bytes),
        ("live", profile.totals.inuse_space, total.live.bytes),
    ] {
        let inside = of.low <= bytes as f64 && bytes as f64 <= of.high;
        ensure!(inside, "{what}: [{}, {}] does not cover {bytes}", of.low, of.high);
    }
    Ok(())
}

#[test]
fn a_full_live_set_is_thinned_without_bias() -> Result<()> {
    let mut workload = truth_workload("31")?;
    let arguments = [DENSE, &["--max-live", "1000"]].concat();
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = profile(&daemon)?;
    totals_hold(&profile, &truth)?;
    let status = daemon.status()?;
    ensure!(outcome(&status, "thinned") > 0, "nothing was thinned: {status}");
    let held = status["live_samples"].as_u64().context("status has no live_samples")?;
    ensure!(held <= 1000, "{held} samples are held");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_storm_does_not_fill_the_live_set() -> Result<()> {
    // Every allocation is sampled, far faster than the daemon can thin the live set.
    let mut workload = truth_workload("35")?;
    let arguments = ["--interval", "1", "--max-live", "1000", "--unwind", "fp"];
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = profile(&daemon)?;
    totals_hold(&profile, &truth)?;
    let status = daemon.status()?;
    ensure!(outcome(&status, "live_declined") > 0, "nothing was declined: {status}");
    ensure!(outcome(&status, "live_full") == 0, "the live set was full: {status}");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_ring_too_small_loses_stacks_but_no_bytes() -> Result<()> {
    let mut workload = truth_workload("32")?;
    let limit = ["--max-samples-per-second", "unlimited"];
    let arguments = [&["--interval", "512", "--ring", "64KiB"][..], &limit].concat();
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = profile(&daemon)?;
    totals_hold(&profile, &truth)?;
    let lost = profile.json["lost"]["ring_full"]["samples"].as_u64().unwrap_or_default();
    ensure!(lost > 0, "nothing was lost: {}", profile.json["lost"]);
    ensure!(outcome(&daemon.status()?, "ring_full") == lost, "status and profile differ");
    ensure!(
        profile.stacks.iter().any(|stack| stack.contains("[lost stacks]")),
        "no row for lost stacks"
    );
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_daemon_stopped_for_ten_seconds_catches_up() -> Result<()> {
    let mut workload = truth_workload("33")?;
    let mut daemon = Daemon::start(&[workload.pid()], DENSE)?;
    let stopped = Instant::now();
    daemon.child().signal(19)?;
    workload.go()?;
    let truth = workload.truth()?;
    wait::pass(Duration::from_secs(10).saturating_sub(stopped.elapsed()));
    daemon.child().signal(18)?;
    totals_hold(&profile(&daemon)?, &truth)?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn estimates_are_right_when_the_interval_changes() -> Result<()> {
    let mut workload = truth_workload("34")?;
    let daemon = Daemon::start(&[workload.pid()], DENSE)?;
    workload.go()?;
    for interval in ["64KiB", "1KiB", "256KiB", "8KiB"] {
        daemon.sampler(&["set", "--interval", interval])?.success("sampler set")?;
    }
    let truth = workload.truth()?;
    totals_hold(&profile(&daemon)?, &truth)?;
    let intervals = daemon.status()?["intervals"].to_string();
    ensure!(intervals.contains("8192"), "the last interval is in force: {intervals}");
    workload.exit()?;
    daemon.stop()
}

/// kill -9: the kernel removes the probes with the daemon, and the target goes on to its end.
#[test]
fn a_killed_daemon_leaves_no_probe() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        let mut workload = truth_workload("35")?;
        let arguments = [DENSE, &["--probe-engine", engine]].concat();
        let mut daemon = Daemon::start(&[workload.pid()], &arguments)?;
        let sites = sites(&daemon.status()?)?;
        let before = standing(workload.pid(), &sites)?;
        ensure!(before > 0, "{engine}: no breakpoint of {} is seen", sites.len());
        workload.go()?;
        daemon.child().signal(9)?;
        daemon.child().wait()?;
        wait::until("the last breakpoint's end", || {
            Ok((standing(workload.pid(), &sites)? == 0).then_some(()))
        })?;
        workload.truth()?;
        workload.exit()?;
    }
    Ok(())
}

#[test]
fn a_stopped_daemon_leaves_no_probe() -> Result<()> {
    let mut workload = truth_workload("36")?;
    let daemon = Daemon::start(&[workload.pid()], DENSE)?;
    let sites = sites(&daemon.status()?)?;
    workload.go()?;
    daemon.stop()?;
    ensure!(standing(workload.pid(), &sites)? == 0, "a probe stays");
    workload.truth()?;
    workload.exit()
}

#[test]
fn a_target_may_be_killed_at_any_moment() -> Result<()> {
    for round in 0..8 {
        let mut workload = truth_workload("37")?;
        let pid = workload.pid();
        let daemon = Daemon::start(&[pid], DENSE)?;
        workload.go()?;
        wait::pass(Duration::from_millis(40 * round));
        workload.child().signal(9)?;
        workload.wait()?;
        daemon.profile_where("the end of its blocks", "live", &[], |profile| {
            profile.totals.inuse_space.moments.samples == 0
        })?;
        daemon.stop().with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// The target dies while the daemon attaches. The result is one clear line, or a profile of a dead
/// process; never a hang.
#[test]
fn a_target_may_die_while_the_daemon_attaches() -> Result<()> {
    for round in 0..8 {
        let mut workload = truth_workload("38")?;
        let pid = workload.pid().to_string();
        let killer = std::thread::spawn(move || {
            wait::pass(Duration::from_millis(15 * round));
            workload.child().signal(9).and_then(|()| workload.wait().map(drop))
        });
        let directory = tempfile::tempdir()?;
        let address = format!("unix:{}", directory.path().join("socket").display());
        let mut command = std::process::Command::new(sampler_tests::build::program("samplerd")?);
        command.args(["--pid", &pid, "--listen", &address]);
        let log = std::fs::File::create(directory.path().join("log"))?;
        let mut daemon = sampler_tests::child::Child::start("samplerd", command.stderr(log))?;
        killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))??;
        match daemon.line() {
            Ok(line) => {
                ensure!(line.starts_with("ready "), "said {line:?}");
                daemon.signal(15)?;
                ensure!(daemon.wait()?.success(), "round {round}: did not end well");
            }
            Err(_) => {
                let log = std::fs::read_to_string(directory.path().join("log"))?;
                ensure!(daemon.wait()?.code() == Some(1), "round {round}: {log}");
                ensure!(!log.contains("panicked"), "round {round}: {log}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused() -> Result<()> {
    let workload = truth_workload("39")?;
    let first = Daemon::start(&[workload.pid()], &[])?;
    let pid = workload.pid().to_string();
    let second = samplerd(&["--pid", &pid, "--listen", &first.address])?;
    ensure!(second.code() == 1, "exit code {}: {}", second.code(), second.stderr);
    let lines = second.stderr.lines().count();
    ensure!((1..=6).contains(&lines), "{lines} lines: {}", second.stderr);
    first.status().context("the first still serves")?;
    first.stop()
}

/// A new daemon replaces the socket that a killed daemon left.
#[test]
fn a_stale_socket_is_taken_over() -> Result<()> {
    let workload = truth_workload("40")?;
    let mut first = Daemon::start(&[workload.pid()], &[])?;
    first.child().signal(9)?;
    first.child().wait()?;
    ensure!(first.socket().exists(), "a killed daemon cannot remove its socket");
    let second = Daemon::start_at(&first.address, &[workload.pid()], &[])?;
    second.status()?;
    second.stop()
}
