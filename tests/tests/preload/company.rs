//! Several samplerd listen to the library in one process. Each gets all samples since its attach,
//! and none disturbs another.

use crate::exact::{EVERYTHING, same};
use anyhow::{Result, ensure};
use sampler_tests::{Daemon, Truth, Workload, again, preload, wait};
use std::process::Command;
use std::time::{Duration, Instant};

/// Lets the next phase run. Returns what all phases have allocated by then.
fn phase(workload: &mut Workload) -> Result<Truth> {
    workload.go()?;
    let mut truth = workload.truth()?;
    truth.functions.retain(|of| of.name != "peak");
    Ok(truth)
}

/// Checks that a daemon that attached late has the allocations since then.
fn knows_the_last_phase(daemon: &Daemon, truth: &Truth) -> Result<()> {
    let profile = daemon.profile("alloc", &[])?;
    for (name, is_seen) in [("first", false), ("second", false), ("third", true)] {
        let of = truth.function(name)?;
        let (allocated, held) =
            (profile.row(name).alloc_space.sum, profile.row(name).inuse_space.sum);
        let expected = if is_seen { (of.alloc.bytes, of.live.bytes) } else { (0, 0) };
        ensure!(
            (allocated, held) == (expected.0 as f64, expected.1 as f64),
            "{name}: {allocated}, {held}"
        );
    }
    Ok(())
}

#[test]
fn each_of_several_daemons_gets_all_samples() -> Result<()> {
    let mut workload = preload::workload("windows.c", &[], 1)?;
    let pid = workload.pid();
    let start = || Daemon::start(&[pid], EVERYTHING);
    let (first, mut second, third) = (start()?, start()?, start()?);
    let truth = phase(&mut workload)?;
    for daemon in [&first, &second, &third] {
        same(&truth, &daemon.profile("alloc", &[])?)?;
    }
    // One daemon ends as it should. Another is killed, and its links close with it. The remaining
    // daemon still reaches the library.
    first.stop()?;
    second.child().signal(9)?;
    second.child().wait()?;
    same(&phase(&mut workload)?, &third.profile("alloc", &[])?)?;
    let late = start()?;
    let truth = phase(&mut workload)?;
    same(&truth, &third.profile("alloc", &[])?)?;
    knows_the_last_phase(&late, &truth)?;
    workload.exit()?;
    third.stop()?;
    late.stop()
}

/// Rust's own code calls jemalloc by its prefixed names, which the library does not have.
#[test]
fn a_heap_past_malloc_is_named() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rust-jemalloc"));
    preload::load(&mut command, 1, &[preload::library()?]);
    let workload = Workload::spawn("rust", &mut command)?;
    for arguments in [&[][..], &["--samplers-only"]] {
        let daemon = Daemon::start(&[workload.pid()], arguments)?;
        let status = daemon.status()?;
        let blind_spots =
            status["blind"].as_array().into_iter().flatten().filter_map(|it| it.as_str());
        let mut named =
            blind_spots.filter(|line| line.contains("jemalloc") && line.contains("past malloc"));
        ensure!(named.next().is_some(), "{arguments:?}: {status}");
        let reference = &daemon.json("profile")?["reference"];
        ensure!(reference["allocations_unseen"] == true, "{arguments:?}: {reference}");
        daemon.stop()?;
    }
    Ok(())
}

/// samplerd listens to a later program from the time when the program maps the library. The survey
/// of all processes would find the program ten seconds after its start.
#[test]
fn a_program_that_starts_later_is_sampled_at_once() -> Result<()> {
    const TRIES: usize = 5;
    again::until("samples of who comes later", TRIES, heard_at_once)
}

fn heard_at_once() -> Result<Result<(), String>> {
    const SOON: Duration = Duration::from_secs(5);
    let daemon = Daemon::start(&[], &["--all", "--samplers-only"])?;
    let mut workload = preload::workload("pressure.c", &["0", "0", "64", "storm"], 64 << 10)?;
    let start = Instant::now();
    workload.go()?;
    wait::until("its samples", || Ok((daemon.outcome("sampled")? > 0).then_some(())))?;
    let took = start.elapsed();
    workload.child().send("enough")?;
    workload.truth()?;
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()?;
    Ok(if took < SOON { Ok(()) } else { Err(format!("received after {took:?}")) })
}
