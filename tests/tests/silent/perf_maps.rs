//! Names of generated code.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::pid_namespace::{child_of, innermost_pid};
use sampler_tests::{Daemon, Workload, build, wait};
use std::process::Command;
use std::time::Duration;

/// Samples every allocation.
const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB"];

/// Lets the clock of files pass, which is coarse.
fn pass_file_clock() {
    wait::pass(Duration::from_millis(20));
}

/// Checks that each function has all its bytes.
fn has_truth(daemon: &Daemon, workload: &mut Workload) -> Result<()> {
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    for of in &truth.functions {
        let sum = profile.row(&of.name).alloc_space.sum;
        ensure!(sum == of.alloc.bytes as f64, "{}: {sum}\n{}", of.name, profile.folded());
    }
    Ok(())
}

/// A map that is rewritten as a whole names later samples. Earlier samples keep their names, even
/// if they were not read before the rewrite.
#[test]
fn a_rewritten_map_names_each_sample_by_its_time() -> Result<()> {
    for asks_between in [false, true] {
        let mut workload = Workload::start("generated.c", &[])?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        workload.go()?;
        workload.wait_for_mark()?;
        if asks_between {
            let profile = daemon.profile("alloc", &[])?;
            let sum = profile.row("before").alloc_space.sum;
            ensure!(sum == 300_000.0, "{sum}\n{}", profile.folded());
        }
        pass_file_clock();
        workload.go()?;
        has_truth(&daemon, &mut workload)?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// A line that is added to a map names later samples.
#[test]
fn an_added_line_names_later_samples() -> Result<()> {
    let mut workload = Workload::start("generated.c", &["grow"])?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    workload.wait_for_mark()?;
    daemon.profile("alloc", &[])?;
    pass_file_clock();
    workload.go()?;
    has_truth(&daemon, &mut workload)?;
    workload.exit()?;
    daemon.stop()
}

/// If samplerd did not look at the map between a sample and an added line, the sample may be of
/// either function. Its name has a mark.
#[test]
fn a_name_that_may_be_wrong_has_a_mark() -> Result<()> {
    let mut workload = Workload::start("generated.c", &["grow"])?;
    let mut daemon = Daemon::start(&[workload.pid()], ALL)?;
    daemon.child().signal(libc::SIGSTOP)?;
    workload.go()?;
    workload.wait_for_mark()?;
    pass_file_clock();
    workload.go()?;
    let truth = workload.truth()?;
    daemon.child().signal(libc::SIGCONT)?;
    let profile = daemon.profile("alloc", &[])?;
    for of in &truth.functions {
        let shown = if of.name == "before" { "before?" } else { &of.name };
        let sum = profile.row(shown).alloc_space.sum;
        ensure!(sum == of.alloc.bytes as f64, "{shown}: {sum}\n{}", profile.folded());
    }
    workload.exit()?;
    daemon.stop()
}

/// Code in shared memory has names. PHP, .NET and Erlang keep their code there.
#[test]
fn code_in_shared_memory_has_names() -> Result<()> {
    for kind in ["shared", "memfd"] {
        let mut workload = Workload::start("generated.c", &[kind])?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        workload.go()?;
        workload.wait_for_mark()?;
        pass_file_clock();
        workload.go()?;
        has_truth(&daemon, &mut workload).context(kind)?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// In a container, a map has its process's number there, and is in a `/tmp` of the container.
#[test]
fn maps_of_containers_are_read() -> Result<()> {
    let program = build::compile("generated.c", &[])?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]);
    // The program may be below /tmp.
    command.arg("exec 3<\"$0\" && mount -t tmpfs none /tmp && exec /proc/self/fd/3").arg(program);
    let mut workload = Workload::spawn("generated.c in a container", &mut command)?;
    let pid = child_of(workload.pid())?;
    ensure!(innermost_pid(pid)? == 1, "the workload is the first process in its namespace");
    let daemon = Daemon::start(&[pid], ALL)?;
    workload.go()?;
    workload.wait_for_mark()?;
    pass_file_clock();
    workload.go()?;
    has_truth(&daemon, &mut workload)?;
    workload.exit()?;
    daemon.stop()
}
