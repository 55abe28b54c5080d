//! `samplerd --inject` injects the sampler, profiles, and ejects the sampler.

use anyhow::{Result, ensure};
use sampler_tests::daemon::samplerd;
use sampler_tests::inject::Subject;
use sampler_tests::{Daemon, Workload, build, wait};
use std::fs;
use std::process::Command;

/// Confidence at which a right interval misses once in ten million times.
const CONFIDENCE: &str = "0.9999999";
/// Mean bytes between samples: about 8,700 samples in a run.
const INTERVAL: &str = "80KiB";

fn workload(seed: u64) -> Result<Workload> {
    Workload::start("truth.c", &[&seed.to_string(), "1", "81920"])
}

/// Checks that the intervals of a profile cover the truth of a run.
pub(crate) fn is_right(daemon: &Daemon, workload: &mut Workload) -> Result<()> {
    workload.go()?;
    let truth = workload.truth()?.total();
    let profile = daemon.profile("alloc", &["--confidence", CONFIDENCE])?;
    let of = &profile.totals;
    for (what, low, high, bytes) in [
        ("allocated", of.alloc_space.low, of.alloc_space.high, truth.alloc.bytes),
        ("held", of.inuse_space.low, of.inuse_space.high, truth.live.bytes),
    ] {
        println!("{what}: {low:.4e} … {high:.4e}, in truth {bytes}");
        let bytes = bytes as f64;
        ensure!(low > 0.0 && (low..=high).contains(&bytes), "{what}: {bytes}: {low} … {high}");
    }
    Ok(())
}

#[test]
fn a_running_process_is_injected_profiled_and_ejected() -> Result<()> {
    let mut workload = workload(1)?;
    let daemon = Daemon::start(
        &[workload.pid()],
        &["--inject", "--interval", INTERVAL, "--ring", "256MiB"],
    )?;
    is_right(&daemon, &mut workload)?;
    let log = daemon.log();
    ensure!(log.contains("the sampler is in: the process stood still for "), "{log}");
    daemon.stop()?;
    // Another samplerd gets no sample from a process whose hooks are removed.
    let daemon = Daemon::start(&[workload.pid()], &["--samplers-only"])?;
    let profile = daemon.profile("alloc", &[])?;
    ensure!(profile.totals.alloc_space.value == 0.0, "{}", profile.folded());
    daemon.stop()?;
    workload.exit()
}

/// Whether a samplerd holds this process.
fn is_held(pid: u32) -> bool {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut infos = all
        .filter(|process| text(process.join("comm")) == "samplerd\n")
        .flat_map(|process| fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten());
    infos.any(|info| text(info.path()).lines().any(|line| line == format!("Pid:\t{pid}")))
}

/// One of several processes ends while samplerd starts. The others are profiled.
#[test]
fn a_process_that_ends_meanwhile_does_not_end_samplerd() -> Result<()> {
    for options in [&["--inject"][..], &[]] {
        let mut workload = workload(3)?;
        let mut other = Workload::start("beside.c", &[])?;
        let (pid, ended) = (workload.pid(), other.pid());
        let killer = std::thread::spawn(move || {
            wait::until("samplerd to hold the process", || Ok(is_held(ended).then_some(())))?;
            other.child().signal(libc::SIGKILL)?;
            other.wait()
        });
        let arguments = [options, &["--interval", INTERVAL, "--ring", "256MiB"]].concat();
        let daemon = Daemon::start(&[pid, ended], &arguments)?;
        ensure!(killer.join().is_ok_and(|killed| killed.is_ok()), "the process was not killed");
        ensure!(daemon.log().contains(&format!("pid {ended}: exited while")), "{}", daemon.log());
        is_right(&daemon, &mut workload)?;
        daemon.stop()?;
        workload.exit()?;
    }
    Ok(())
}

#[test]
fn a_hooked_process_is_adopted_by_the_next_daemon() -> Result<()> {
    let mut workload = workload(2)?;
    let pid = workload.pid();
    Daemon::start(&[pid], &["--inject=leave"])?.stop()?;
    ensure!(sampler_tests::inject::remains(pid)?.0 > 0, "nothing was left in");
    let daemon = Daemon::start(&[pid], &["--inject", "--interval", INTERVAL, "--ring", "256MiB"])?;
    is_right(&daemon, &mut workload)?;
    daemon.stop()?;
    workload.exit()
}

#[test]
fn a_refused_process_is_named_in_one_line_and_unchanged() -> Result<()> {
    let good = workload(3)?;
    let program = build::compile("family.c", &["-static"])?;
    let still = Subject::spawn("family.c", &mut Command::new(program))?;
    let (good_pid, pid) = (good.pid().to_string(), still.pid().to_string());
    let finished = samplerd(&["--pid", &good_pid, "--pid", &pid, "--inject"])?;
    let last = finished.stderr.lines().last().unwrap_or_default().to_owned();
    ensure!(finished.code() == 1, "{} {}", finished.code(), finished.stderr);
    ensure!(last.contains(&format!("pid {pid}")) && last.contains("--windows"), "{last}");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    ensure!(!maps.contains("otel_memory"), "the static program was changed");
    Ok(())
}

#[test]
fn contradictory_options_are_refused() -> Result<()> {
    let own = std::process::id().to_string();
    for (with, expected) in [
        (["--all", "--inject"].as_slice(), "--inject-only"),
        (&["--all", "--max-overhead", "1%"], "--inject-only"),
        (&["--pid", &own, "--inject", "--windows=1%"], "--windows"),
        (&["--pid", &own, "--inject", "--inject-only", "comm:a"], "--follow"),
        (&["--all", "--inject-only", "comm:a"], "--inject)"),
        (&["--pid", &own, "--max-overhead", "1"], "as 1%"),
        (&["--pid", &own, "--max-overhead", "0%"], "above 0%"),
    ] {
        let finished = samplerd(with)?;
        ensure!(finished.code() == 2, "{with:?}: {}", finished.code());
        ensure!(finished.stderr.contains(expected), "{with:?}: {}", finished.stderr);
    }
    Ok(())
}
