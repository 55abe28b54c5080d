//! Processes that samplerd must not profile. samplerd probes no file that only such processes map,
//! and holds none of their files open.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{Daemon, Workload, breakpoints, build, wait};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A workload that waits at its mark.
const PROGRAM: (&str, &[&str]) = ("tree.c", &["wait"]);

fn program() -> Result<std::path::PathBuf> {
    build::compile(PROGRAM.0, &[])
}

/// A shell that executes a program with a C library of its own when it gets a line.
fn shell(libc: &OwnLibc) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exec \"$@\"", "sh"]).arg(libc.loader());
    command.args(libc.command(&program()?).get_args()).args(PROGRAM.1);
    Child::start("sh", &mut command)
}

/// A program with a C library of its own that waits at its mark.
fn workload(libc: &OwnLibc) -> Result<Workload> {
    Workload::spawn("own libc", libc.command(&program()?).args(PROGRAM.1))
}

/// Waits until the library of a process is probed. samplerd handles events in the order of their
/// times. It has therefore handled all earlier mappings by then.
fn until_probed(pid: u32, libc: &OwnLibc, daemon: &Daemon) -> Result<()> {
    let path = libc.path()?;
    let found = wait::until("probes", || Ok((breakpoints::changed(pid, &path)? > 0).then_some(())));
    found.with_context(|| daemon.log())
}

/// A file system in memory, mounted on a directory.
struct Mount<'a>(&'a Path);

impl Mount<'_> {
    fn make(directory: &Path) -> Result<Mount<'_>> {
        let mut mount = Command::new("mount");
        finish(mount.args(["-t", "tmpfs", "tmpfs"]).arg(directory))?.success("mount")?;
        Ok(Mount(directory))
    }

    /// Unmounts the file system, which fails while one of its files is open. Programs that inspect
    /// processes open a file for a moment, and a process that is ending still has one open.
    fn end(self) -> Result<()> {
        let mut last = String::new();
        let ended = wait::until("that no file of the mount is held", || {
            let finished = finish(Command::new("umount").arg(self.0))?;
            last.clone_from(&finished.stderr);
            Ok((finished.code() == 0).then_some(()))
        });
        ended.context(last)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // After `end` the file system is unmounted already.
        let _ = finish(Command::new("umount").args(["--lazy", "--quiet"]).arg(self.0));
    }
}

/// Files that only processes outside the tree map are neither probed nor held open. A file that a
/// process of the tree maps later is.
fn outside_of_a_tree(arguments: &[&str]) -> Result<()> {
    let (directory, own) = (tempfile::tempdir()?, OwnLibc::copy()?);
    let mount = Mount::make(directory.path())?;
    let its = OwnLibc::copy_to(tempfile::tempdir_in(directory.path())?)?;
    let mut inside = shell(&own)?;
    let mut before = workload(&its)?;
    let daemon = Daemon::start(&[inside.pid()], &[&["--follow"], arguments].concat())?;
    let mut after = workload(&its)?;
    inside.send("go")?;
    ensure!(inside.line()? == "waiting");
    until_probed(inside.pid(), &own, &daemon)?;
    for outside in [&mut before, &mut after] {
        let changed = breakpoints::changed(outside.pid(), &its.path()?)?;
        ensure!(changed == 0, "{changed} bytes of a stranger's code: {}", daemon.log());
        outside.go()?;
        while outside.child().line()? != "end" {}
        outside.exit()?;
    }
    drop(its);
    mount.end()?;
    daemon.stop()
}

#[test]
fn a_file_that_only_others_map_is_left_alone() -> Result<()> {
    outside_of_a_tree(&[])?;
    outside_of_a_tree(&["--probe-engine", "perf"])
}

#[test]
fn a_file_that_only_others_map_is_left_alone_in_windows() -> Result<()> {
    // The process has its own links, which exist in windows only. So only the end of the mount can
    // fail.
    let (directory, own) = (tempfile::tempdir()?, OwnLibc::copy()?);
    let mount = Mount::make(directory.path())?;
    let its = OwnLibc::copy_to(tempfile::tempdir_in(directory.path())?)?;
    let inside = workload(&own)?;
    let daemon = Daemon::start(&[inside.pid()], &["--follow", "--windows", "1%"])?;
    drop(workload(&its)?);
    // samplerd answers after it has handled all events before.
    daemon.status()?;
    drop(its);
    mount.end()?;
    daemon.stop()
}

/// With all processes profiled, files that only excluded ones map are not probed.
#[test]
fn a_file_that_only_excluded_processes_map_is_left_alone() -> Result<()> {
    let (own, its) = (OwnLibc::copy()?, OwnLibc::copy()?);
    let loader = its.loader().with_file_name("left-alone");
    fs::rename(its.loader(), &loader).context("rename the loader")?;
    let start = || {
        let mut command = Command::new(&loader);
        command.args(its.command(&program()?).get_args()).args(PROGRAM.1);
        Workload::spawn("left alone", &mut command)
    };
    let before = start()?;
    let daemon = Daemon::start(&[], &["--all", "--exclude", "comm:left-alone"])?;
    let after = start()?;
    let other = workload(&own)?;
    until_probed(other.pid(), &own, &daemon)?;
    for excluded in [&before, &after] {
        let changed = breakpoints::changed(excluded.pid(), &its.path()?)?;
        ensure!(changed == 0, "{changed} bytes of an excluded process: {}", daemon.log());
    }
    // Another process maps the file.
    let other = Workload::spawn("own libc", its.command(&program()?).args(PROGRAM.1));
    ensure!(other.is_err(), "its loader has another name");
    let mut command = Command::new("/lib64/ld-linux-x86-64.so.2");
    command.args(its.command(&program()?).get_args()).args(PROGRAM.1);
    let other = Workload::spawn("somebody else", &mut command)?;
    until_probed(other.pid(), &its, &daemon)?;
    daemon.stop()
}

/// Five processes share their links. The file of a process that has ended is not probed.
#[test]
fn a_file_that_no_listed_process_maps_any_more_is_left_alone() -> Result<()> {
    let its = OwnLibc::copy()?;
    let others: Vec<Workload> =
        (0..4).map(|_| Workload::start(PROGRAM.0, PROGRAM.1)).collect::<Result<_>>()?;
    let mut last = workload(&its)?;
    let outside = workload(&its)?;
    let pids: Vec<u32> = others.iter().chain([&last]).map(Workload::pid).collect();
    let daemon = Daemon::start(&pids, &[])?;
    until_probed(outside.pid(), &its, &daemon)?;
    last.go()?;
    while last.child().line()? != "end" {}
    last.exit()?;
    let path = its.path()?;
    wait::until("the end of the probes", || {
        Ok((breakpoints::changed(outside.pid(), &path)? == 0).then_some(()))
    })?;
    daemon.stop()
}
