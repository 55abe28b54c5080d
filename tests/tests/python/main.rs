//! Checks Python frames: functions, files and lines of a running CPython are those that Python
//! itself reports.

mod in_process;
mod interpreters;
mod refused;
mod stack;

use anyhow::{Context, Result, ensure};
use sampler_tests::pid_namespace::{PidNamespace, child_of, innermost_pid};
use sampler_tests::{Daemon, Workload, pythons};
use stack::{are_those, blocks, folded, none_is_missing, spawn};

/// Number of allocations of the workload at each of its stacks; at some stacks twice as many.
const REPEATS: u64 = 8;

/// Number of random stacks at which each version allocates once.
const STOPS: usize = 200;

/// Samples every allocation, in a ring that has room for all samples.
const ALL: &[&str] = &["--interval", "1", "--ring", "512MiB"];

/// Checks that all stacks of a workload are those that Python reports.
fn check(daemon: Daemon, mut workload: Workload) -> Result<()> {
    workload.go()?;
    let blocks = blocks(&workload.child().line()?)?;
    ensure!(blocks.len() >= 10, "{} stacks", blocks.len());
    are_those(&folded(&daemon)?, &blocks, &[REPEATS, 2 * REPEATS])?;
    none_is_missing(&daemon)?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn stacks_equal_those_of_python() -> Result<()> {
    for python in pythons::known()? {
        let workload = spawn(python.command()?)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        check(daemon, workload).with_context(|| format!("{python:?}"))?;
    }
    Ok(())
}

/// Stacks of random shapes: recursion, generators, coroutines, tasks, decorators, compiled code,
/// classes, finalizers, threads, and C code that calls back.
#[test]
fn random_stacks_equal_those_of_python() -> Result<()> {
    for python in pythons::known()? {
        let mut workload = spawn(python.command()?)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        let mut compare = || {
            workload.child().send(&format!("stops {STOPS}"))?;
            let blocks = blocks(&workload.child().line()?)?;
            ensure!(blocks.len() > STOPS / 2, "{} different stacks", blocks.len());
            are_those(&folded(&daemon)?, &blocks, &[1])?;
            none_is_missing(&daemon)
        };
        compare().with_context(|| format!("{python:?}"))?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn stacks_in_a_pid_namespace_equal_those_of_python() -> Result<()> {
    let python = pythons::known()?.into_iter().next().context("no interpreter")?;
    let namespace = PidNamespace::start()?;
    let workload = spawn(namespace.command(&python.program))?;
    let pid = innermost_pid(child_of(workload.pid())?)?;
    let daemon = Daemon::start_inside(&namespace, &[pid], ALL)?;
    check(daemon, workload)
}

/// Code objects are freed, and others take their addresses, before a sample of the freed ones is
/// read. The shown frames are right, or they are native.
#[test]
fn freed_code_objects_are_not_named_by_later_ones() -> Result<()> {
    for python in pythons::known()? {
        let mut workload = spawn(python.command()?)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        workload.child().send("gone")?;
        workload.child().line()?;
        let folded = folded(&daemon)?;
        let unread = daemon.outcome("python_unread")?;
        ensure!(unread > 0, "{python:?}: all was read: {}", daemon.status()?);
        for line in folded.lines() {
            let Some((_, rest)) = line.split_once("(gone.py:") else { continue };
            let number = rest.split(')').next().unwrap_or_default().parse::<u64>()?;
            let bytes = line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?;
            let size = 100_000 + 1_000 * number;
            // Compiling allocates as well, but at other stacks.
            ensure!(
                (size..size + 1_000).contains(&bytes),
                "{python:?}: line {number}: {bytes} bytes\n{folded}"
            );
        }
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}
