//! Programs that move their own code to anonymous memory, together with the bytes of probes.

use crate::refusal;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Workload, build};
use std::path::PathBuf;
use std::process::Command;

const METHODS: [&str; 2] = ["copy", "swap"];

fn program(flags: &[&str]) -> Result<PathBuf> {
    build::compile("moved.c", &[&["-static"], flags].concat())
}

fn start(flags: &[&str], arguments: &[&str]) -> Result<Workload> {
    Workload::start_program(&program(flags)?, arguments)
}

/// Lets the program move its code, allocate and end. Checks that it ends as it does without
/// samplerd.
fn ends_well(mut workload: Workload) -> Result<()> {
    workload.go()?;
    workload.truth().context("it was killed")?;
    workload.exit()
}

/// samplerd's message when it refuses the program.
fn refused(workload: &Workload, arguments: &[&str]) -> Result<String> {
    let pid = workload.pid().to_string();
    refusal(&[&["--pid", &pid], arguments].concat())
}

#[test]
fn a_program_that_could_move_its_code_is_refused() -> Result<()> {
    for way in METHODS {
        for flags in [&[][..], &["-O1"], &[build::MUSL]] {
            let workload = start(flags, &[way, "late"])?;
            let line = refused(&workload, &[])?;
            let says = line.contains("may move its code") && line.contains("--probe-executables");
            ensure!(says, "{way}: {line:?}");
            ends_well(workload)?;
        }
    }
    Ok(())
}

#[test]
fn a_program_with_moved_code_is_refused() -> Result<()> {
    for way in METHODS {
        let workload = start(&[], &[way, "early"])?;
        for arguments in [&[][..], &["--probe-executables", "all"]] {
            let line = refused(&workload, arguments)?;
            ensure!(line.contains("has moved its code to anonymous memory"), "{way}: {line:?}");
        }
        ends_well(workload)?;
    }
    Ok(())
}

#[test]
fn a_program_that_may_move_its_code_is_blind_with_all() -> Result<()> {
    let daemon = Daemon::start(&[], &["--all"])?;
    for way in METHODS {
        let workload = start(&[], &[way, "late"])?;
        let blind_spots = sampler_tests::wait::until("the line about it", || {
            let blind_spots = daemon.status()?["blind"].to_string();
            Ok(blind_spots.contains("may move its code").then_some(blind_spots))
        });
        blind_spots.with_context(|| daemon.log())?;
        ends_well(workload)?;
    }
    daemon.stop()
}

#[test]
fn a_program_that_moves_its_code_runs_under_sampler_run() -> Result<()> {
    build::require_root()?;
    for way in METHODS {
        let mut command = Command::new(build::program("sampler")?);
        command.args(["run", "--as-root", "--"]).arg(program(&[])?).args([way, "now"]);
        let finished = finish(&mut command)?;
        ensure!(finished.status.success(), "{way}: {}: {}", finished.status, finished.stderr);
        ensure!(finished.stderr.contains("may move its code"), "{way}: {}", finished.stderr);
    }
    Ok(())
}

/// A program without such code is profiled, after a warning. A program with such code is profiled
/// only if the user accepts the risk.
#[test]
fn programs_that_keep_their_code_in_place_are_profiled() -> Result<()> {
    for (flags, arguments) in
        [(&["-DSTAYS"][..], &[][..]), (&[][..], &["--probe-executables", "all"])]
    {
        let mut workload = start(flags, &["never", "late"])?;
        let daemon = Daemon::start(&[workload.pid()], &[&["--interval", "1"], arguments].concat())?;
        workload.go()?;
        let truth = workload.truth()?.total().alloc.bytes;
        let profile = daemon.profile("alloc", &[])?;
        ensure!(profile.row("kept_blocks").alloc_space.sum == truth as f64, "{}", profile.folded());
        let is_logged = daemon.log().contains("its allocator is in the executable");
        ensure!(is_logged == arguments.is_empty(), "{}", daemon.log());
        workload.exit()?;
        daemon.stop()?;
    }
    let workload = start(&["-DSTAYS"], &["never", "late"])?;
    let line = refused(&workload, &["--probe-executables", "none"])?;
    ensure!(line.contains("its allocator is in the executable"), "{line:?}");
    ends_well(workload)
}
