//! `--inject` with processes that are found later: `--follow`, and `--all --inject-only`.

use crate::daemon::is_right;
use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build, inject, wait};
use std::fs;
use std::path::Path;

/// A shell script that starts its program when it gets a line, and ends after the program.
const STARTS: &str = "echo waiting; read line; \"$@\"; exit 0";

/// Pid of the process in `ps` that has this command name.
fn listed(daemon: &Daemon, comm: &str) -> Result<u32> {
    let listed = daemon.json("ps")?;
    let all = listed["processes"].as_array().context("ps has no processes")?;
    let of = all.iter().find(|of| of["comm"] == comm).with_context(|| listed.to_string())?;
    ensure!(of["sources"].to_string().contains("injected"), "{of}");
    Ok(u32::try_from(of["pid"].as_u64().context("no pid")?)?)
}

/// A shell that will start a copy of `truth.c`, named `name`, in `directory`.
fn shell(directory: &Path, name: &str, flags: &[&str], seed: &str) -> Result<Workload> {
    let path = directory.join(name);
    fs::copy(build::compile("truth.c", flags)?, &path).context("copy the program")?;
    let path = path.display().to_string();
    Workload::start_program("/bin/sh".as_ref(), &["-c", STARTS, "sh", &path, seed, "1", "81920"])
}

/// Has the shell start its program. Compares the profile with the program's truth, once `injected`
/// processes have the sampler.
fn is_right_once_started(
    daemon: Daemon,
    mut shell: Workload,
    comm: &str,
    injected: usize,
) -> Result<()> {
    shell.go()?;
    shell.wait_for_mark()?;
    wait::until("the sampler in the new process", || {
        let log = daemon.log();
        Ok((log.matches("the sampler is in: ").count() == injected).then_some(()))
    })?;
    is_right(&daemon, &mut shell)?;
    let pid = listed(&daemon, comm)?;
    daemon.stop()?;
    // The sampler was ejected from the program, too.
    let daemon = Daemon::start(&[pid], &["--samplers-only"])?;
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(blind_spots.contains("has been taken out"), "{blind_spots}");
    daemon.stop()?;
    shell.exit()
}

#[test]
fn started_programs_of_a_process_are_injected() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let shell = shell(directory.path(), "started", &[], "7")?;
    let options = ["--inject", "--follow", "--interval", "80KiB", "--ring", "256MiB"];
    let daemon = Daemon::start(&[shell.pid()], &options)?;
    is_right_once_started(daemon, shell, "started", 2)
}

#[test]
fn chosen_processes_of_the_machine_are_injected() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let shell = shell(directory.path(), "chosen", &[], "8")?;
    let only = ["--all", "--inject", "--inject-only", "comm:chosen"];
    let daemon =
        Daemon::start(&[], &[&only[..], &["--interval", "80KiB", "--ring", "256MiB"]].concat())?;
    let own = fs::read_to_string("/proc/self/maps")?;
    ensure!(!own.contains("otel_memory-sampler"), "a process was injected that was not chosen");
    let (mappings, _) = inject::remains(shell.pid())?;
    ensure!(mappings == 0, "the shell was injected");
    is_right_once_started(daemon, shell, "chosen", 1)
}

/// A service that is started again injects the processes anew that the one before it has ejected.
#[test]
fn a_process_is_injected_again_after_its_ejection() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("again");
    fs::copy(build::compile("truth.c", &[])?, &path).context("copy the program")?;
    let mut workload = Workload::start_program(&path, &["9", "1", "81920"])?;
    let only = ["--all", "--inject", "--inject-only", "comm:again"];
    let options = [&only[..], &["--interval", "80KiB", "--ring", "256MiB"]].concat();
    let start = || {
        let daemon = Daemon::start(&[], &options)?;
        wait::until("the sampler in the process", || {
            Ok(daemon.log().contains("the sampler is in: ").then_some(()))
        })?;
        Ok::<_, anyhow::Error>(daemon)
    };
    start()?.stop()?;
    let daemon = start()?;
    is_right(&daemon, &mut workload)?;
    daemon.stop()?;
    workload.exit()
}

/// Every allocation of what is forked is seen. What ends before it can be injected is counted.
#[test]
fn a_tree_is_injected_and_short_processes_are_counted() -> Result<()> {
    let mut tree = Workload::start("tree.c", &["wait"])?;
    let daemon = Daemon::start(&[tree.pid()], &["--inject", "--follow", "--interval", "1"])?;
    tree.go()?;
    let mut objects = Vec::new();
    loop {
        let line = tree.child().line()?;
        if line == "end" {
            break;
        }
        let mut words = line.split(' ').skip(1);
        objects.push(words.next().context("no objects")?.parse::<u64>()?);
    }
    ensure!(objects.len() >= 9, "{objects:?}");
    let profile = daemon.profile("alloc", &[])?;
    let seen = profile.totals.alloc_objects.value;
    // 13, 15 and 16 objects are of programs that end at once. 18 and 19 are of a child that existed
    // before.
    let is_forked = |of: &&u64| ![13, 15, 16, 18, 19].contains(*of);
    let forked: u64 = objects.iter().filter(is_forked).sum();
    let all: u64 = objects.iter().sum();
    println!("{seen} of {objects:?}");
    ensure!(
        (forked as f64..=all as f64).contains(&seen),
        "{seen} of {objects:?}: {}",
        daemon.log()
    );
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(
        seen == all as f64
            || blind_spots.contains("processes that ended before the sampler was in them"),
        "{seen} of {objects:?}: {blind_spots}"
    );
    tree.exit()?;
    daemon.stop()
}

/// A program that cannot be injected is listed, and the others are profiled.
#[test]
fn a_refused_process_of_a_tree_is_blind() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut shell = shell(directory.path(), "static", &["-static"], "9")?;
    let daemon = Daemon::start(&[shell.pid()], &["--inject", "--follow"])?;
    shell.go()?;
    shell.wait_for_mark()?;
    wait::until("the refusal", || {
        let blind_spots = daemon.status()?["blind"].to_string();
        Ok(blind_spots.contains("static program").then_some(()))
    })?;
    ensure!(daemon.log().contains("not injected: its libc is not glibc"), "{}", daemon.log());
    daemon.stop()?;
    shell.go()?;
    shell.truth()?;
    shell.exit()
}
