//! Programs in Rust whose global allocator has names of its own: the injected sampler samples it,
//! and `malloc` as well, into one profile.

use crate::daemon::is_right;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Workload, build, inject, preload};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

/// Each with the name of its allocator, and the function by which the allocator frees.
const PROGRAMS: [(&str, &str, &str); 2] = [
    (env!("CARGO_BIN_EXE_rust-jemalloc"), "jemalloc", "_rjem_sdallocx"),
    (env!("CARGO_BIN_EXE_rust-mimalloc"), "mimalloc", "mi_free"),
];
/// Every allocation is sampled.
const EVERYTHING: [&str; 7] =
    ["--inject", "--interval", "1", "--max-samples-per-second", "unlimited", "--ring", "256MiB"];
/// About 2,700 samples of a run of [`ROUNDS`].
const INTERVAL: &str = "16KiB";
const ROUNDS: &str = "3000";

fn start(program: &str, arguments: &[&str]) -> Result<Workload> {
    Workload::start_program(program.as_ref(), arguments)
}

/// Checks that samplerd knows of no allocation that it does not see.
fn sees_everything(daemon: &Daemon) -> Result<()> {
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(!blind_spots.contains("past malloc"), "{blind_spots}");
    let is_unseen = &daemon.json("profile")?["reference"]["allocations_unseen"];
    ensure!(*is_unseen != true, "blind: {blind_spots}");
    Ok(())
}

/// Checks that each function has exactly its allocations and its held blocks.
fn is_exact(mut workload: Workload) -> Result<()> {
    let daemon = Daemon::start(&[workload.pid()], &EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    for of in &truth.functions {
        let row = profile.row(&of.name);
        let seen = (row.alloc_space.sum, row.inuse_space.sum);
        let expected = (of.alloc.bytes as f64, of.live.bytes as f64);
        ensure!(seen == expected, "{}: {seen:?} is not {expected:?}: {}", of.name, daemon.log());
    }
    sees_everything(&daemon)?;
    workload.exit()?;
    daemon.stop()
}

fn are_exact(arguments: &[&str]) -> Result<()> {
    PROGRAMS
        .iter()
        .try_for_each(|(program, name, _)| is_exact(start(program, arguments)?).context(*name))
}

#[test]
fn blocks_of_both_heaps_are_counted_once_and_freed() -> Result<()> {
    are_exact(&[])
}

#[test]
fn threads_with_both_heaps_are_followed() -> Result<()> {
    are_exact(&["150", "4"])
}

/// `mallocx`, `rallocx`, `dallocx` and `sdallocx` of the allocator that serves `malloc`.
#[test]
fn extended_functions_of_jemalloc_are_followed() -> Result<()> {
    let mut command = Command::new(build::compile("extended.c", &[])?);
    command.env("LD_PRELOAD", preload::debian("libjemalloc.so.2")?);
    is_exact(Workload::spawn("extended.c", &mut command)?)
}

#[test]
fn intervals_cover_the_totals_of_both_heaps() -> Result<()> {
    for (program, name, _) in PROGRAMS {
        let mut workload = start(program, &[ROUNDS])?;
        let arguments = ["--inject", "--interval", INTERVAL, "--ring", "256MiB"];
        let daemon = Daemon::start(&[workload.pid()], &arguments)?;
        is_right(&daemon, &mut workload).context(name)?;
        sees_everything(&daemon).context(name)?;
        daemon.stop()?;
        // The hooks of both heaps are gone.
        let daemon = Daemon::start(&[workload.pid()], &["--samplers-only"])?;
        let profile = daemon.profile("alloc", &[])?;
        ensure!(profile.totals.alloc_space.value == 0.0, "{name}: {}", profile.folded());
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn hooks_of_both_heaps_are_adopted_by_the_next_daemon() -> Result<()> {
    for (program, name, freeing) in PROGRAMS {
        let mut workload = start(program, &[ROUNDS])?;
        let pid = workload.pid();
        Daemon::start(&[pid], &["--inject=leave"])?.stop()?;
        let line = inject::done("preflight", pid, &[])?;
        ensure!(line.contains(&format!("{freeing}@")), "{line}");
        let arguments = ["--inject", "--interval", INTERVAL, "--ring", "256MiB"];
        let daemon = Daemon::start(&[pid], &arguments)?;
        is_right(&daemon, &mut workload).context(name)?;
        sees_everything(&daemon).context(name)?;
        daemon.stop()?;
        workload.exit()?;
    }
    Ok(())
}

fn stripped(program: &Path, folder: &Path) -> Result<std::path::PathBuf> {
    let copy = folder.join("stripped");
    let finished = finish(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
    ensure!(finished.code() == 0, "{}", finished.stderr);
    Ok(copy)
}

/// Without symbols only `malloc` is hooked, and samplerd says that totals are too low.
#[test]
fn a_heap_without_symbols_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (program, name, _) in PROGRAMS {
        let copy = stripped(program.as_ref(), folder.path())?;
        let mut workload = Workload::start_program(&copy, &[])?;
        let daemon = Daemon::start(&[workload.pid()], &EVERYTHING)?;
        workload.go()?;
        let truth = workload.truth()?;
        let profile = daemon.profile("alloc", &[])?;
        let of_malloc = ["by_malloc", "by_realloc"].map(|name| truth.function(name));
        let expected: u64 = of_malloc.into_iter().flatten().map(|of| of.alloc.bytes).sum();
        let seen = profile.totals.alloc_space.value;
        ensure!(seen == expected as f64, "{name}: {seen}, not {expected}");
        let blind_spots = daemon.status()?["blind"].to_string();
        ensure!(blind_spots.contains(name), "{name}: {blind_spots}");
        let is_unseen = &daemon.json("profile")?["reference"]["allocations_unseen"];
        ensure!(*is_unseen == true, "{name}: blind: {blind_spots}");
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// Address of a program's function in a process.
fn address(pid: u32, program: &str, function: &str) -> Result<u64> {
    let symbols = finish(Command::new("nm").arg(program))?;
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let is_it = |line: &&str| line.ends_with(&format!(" T {function}"));
    let line = symbols.lines().find(is_it).with_context(|| format!("no {function}"))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let parse = |text: Option<&str>| u64::from_str_radix(text.unwrap_or_default(), 16);
    let first = maps.lines().find(|line| line.ends_with(program)).context("no program")?;
    Ok(parse(first.split('-').next())? + parse(line.split(' ').next())?)
}

/// One of its functions cannot be hooked: then none is, and `malloc` alone is sampled.
#[test]
fn a_heap_with_a_changed_function_is_left_out_and_named() -> Result<()> {
    for (program, name, freeing) in PROGRAMS {
        let mut workload = start(program, &[])?;
        let pid = workload.pid();
        let memory = File::options().write(true).open(format!("/proc/{pid}/mem"))?;
        // The program does not call the function before its end.
        memory.write_all_at(&[0x90], address(pid, program, freeing)?)?;
        let line = inject::inject(pid, 4096)?;
        let (hooked, left_out) = line.split_once(" left out: ").with_context(|| line.clone())?;
        ensure!(hooked.contains("malloc@") && !hooked.contains(&format!("{freeing}@")), "{line}");
        let why = format!("{freeing} has been changed by another tool");
        ensure!(left_out.starts_with(name) && left_out.contains(&why), "{line}");
        let daemon = Daemon::start(&[pid], &["--samplers-only"])?;
        let blind_spots = daemon.status()?["blind"].to_string();
        ensure!(blind_spots.contains(name) && blind_spots.contains("past malloc"), "{blind_spots}");
        daemon.stop()?;
        workload.child().signal(9)?;
        workload.wait()?;
    }
    Ok(())
}

/// `mi_new` may throw, and is never hooked. Then no function of its allocator is, and `malloc`
/// alone is sampled.
#[test]
fn a_heap_with_a_function_that_may_throw_is_left_out_and_named() -> Result<()> {
    let mut workload = Workload::start("bump.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?;
    let expected: u64 = truth.functions.iter().map(|of| of.alloc.bytes).sum();
    let seen = daemon.profile("alloc", &[])?.totals.alloc_space.value;
    ensure!(seen == expected as f64 && seen > 0.0, "{seen}, not {expected}: {}", daemon.log());
    ensure!(daemon.log().contains("mi_new: the sampler cannot follow"), "{}", daemon.log());
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(blind_spots.contains("past malloc"), "{blind_spots}");
    workload.exit()?;
    daemon.stop()
}
