//! `samplerd --follow` profiles a tree of processes.

use crate::{Truth, add, sum};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Workload, build};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Lets the workload `tree wait` make its tree.
fn make(workload: &mut Workload) -> Result<Truth> {
    let mut truth = Truth::new();
    workload.go()?;
    loop {
        let line = workload.child().line()?;
        if line == "end" {
            return Ok(truth);
        }
        add(&mut truth, &line)?;
    }
}

fn followed(arguments: &[&str]) -> Result<()> {
    let mut inside = Workload::start("tree.c", &["wait"])?;
    let mut outside = Workload::start("tree.c", &["wait"])?;
    let daemon = Daemon::start(&[inside.pid()], &[&["--follow"], arguments].concat())?;
    let strangers = make(&mut outside)?;
    let truth = make(&mut inside)?;
    ensure!(truth.len() == 9, "processes that said something: {truth:?}");

    let profile = daemon.profile("alloc", &[])?;
    let seen = (profile.exact_objects, profile.exact_space);
    let status = daemon.status()?;
    ensure!(seen == sum(&truth), "all: {seen:?} is not {truth:?}; {status}; {}", daemon.log());
    let listed = daemon.json("ps")?;
    let listed = listed["processes"].as_array().context("ps has no processes")?;
    let mut seen = Truth::new();
    for process in listed {
        let count = |key: &str| process["exact"][key].as_u64().context("ps has no exact totals");
        let pid = process["pid"].as_u64().context("ps has no pid")?;
        ensure!(!strangers.contains_key(&pid), "{pid} is outside: {process}");
        seen.insert(pid, (count("alloc_objects")?, count("alloc_space")?));
    }
    ensure!(seen == truth, "{seen:?} is not {truth:?}");
    ensure!(status["blind"].to_string().contains("outside the tree"), "{}", status["blind"]);
    inside.exit()?;
    outside.exit()?;
    daemon.stop()
}

#[test]
fn every_process_of_a_tree_is_counted_exactly() -> Result<()> {
    followed(&[])
}

#[test]
fn every_process_of_a_tree_is_exact_on_every_engine() -> Result<()> {
    followed(&["--probe-engine", "multi"])?;
    followed(&["--probe-engine", "perf"])
}

/// A process is in the tree as long as one of its threads runs.
#[test]
fn a_child_is_counted_after_its_first_thread_exits() -> Result<()> {
    let mut parent = Workload::start("tree.c", &["orphan"])?;
    let daemon = Daemon::start(&[parent.pid()], &["--follow"])?;
    let truth = make(&mut parent)?;
    let profile = daemon.profile("alloc", &[])?;
    let seen = (profile.exact_objects, profile.exact_space);
    ensure!(seen == (20, 18_000) && seen == sum(&truth), "{seen:?} is not {truth:?}");
    parent.exit()?;
    daemon.stop()
}

/// Starts a tree of programs of three names, one of which is excluded. Checks that the others have
/// their allocations, and that the excluded ones have none.
fn spared(root_excluded: bool) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = |name: &str| -> Result<String> {
        let path = directory.path().join(name);
        fs::copy(build::compile("tree.c", &[])?, &path).context("copy the program")?;
        Ok(path.display().to_string())
    };
    let [root, kept, out] = [program("tree-root")?, program("tree-kept")?, program("tree-out")?];
    let mut tree = Workload::start_program(root.as_ref(), &["spare", &kept, &out])?;
    let mut arguments = vec!["--follow", "--exclude", "comm:tree-out"];
    if root_excluded {
        arguments.extend(["--exclude", "comm:tree-r*"]);
    }
    let daemon = Daemon::start(&[tree.pid()], &arguments)?;
    tree.go()?;
    let mut said = Vec::new();
    loop {
        let line = tree.child().line()?;
        if line == "end" {
            break;
        }
        let mut truth = Truth::new();
        add(&mut truth, &line)?;
        said.extend(truth.into_iter().map(|(pid, of)| (pid, of.0)));
        if said.last().is_some_and(|of| of.1 == 25) {
            // The daemon answers after it has processed all samples so far.
            daemon.json("ps")?;
            tree.child().send("change")?;
        }
    }
    let mut expected: BTreeMap<u64, u64> = said.iter().copied().collect();
    ensure!(said.len() == 7 && expected.len() == 6, "processes that said something: {said:?}");
    expected
        .retain(|_, objects| [22, 24, 26].contains(objects) || *objects == 20 && !root_excluded);
    let listed = daemon.json("ps")?;
    let listed = listed["processes"].as_array().context("ps has no processes")?;
    let seen = listed.iter().filter(|of| of["exact"]["alloc_objects"] != 0);
    let seen: Vec<_> =
        seen.map(|of| (of["pid"].as_u64(), of["exact"]["alloc_objects"].as_u64())).collect();
    let seen: BTreeMap<u64, u64> =
        seen.into_iter().filter_map(|(pid, of)| Some((pid?, of?))).collect();
    ensure!(seen == expected, "{seen:?} is not {expected:?} of {said:?}: {}", daemon.log());
    tree.exit()?;
    daemon.stop()
}

/// Excluded processes are not probed. The processes that they start, or become, are.
#[test]
fn excluded_processes_of_a_tree_are_not_counted() -> Result<()> {
    spared(false)?;
    spared(true)
}

/// The daemon cannot follow forks on a kernel whose types do not say where a task has its ids.
#[test]
fn a_kernel_without_types_is_refused() -> Result<()> {
    build::require_root()?;
    let hide = "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide, "sh"]).arg(build::program("samplerd")?);
    let directory = tempfile::tempdir()?;
    let listen = format!("unix:{}", directory.path().join("socket").display());
    let own = std::process::id().to_string();
    let finished = finish(command.args(["--follow", "--pid", &own, "--listen", &listen]))?;
    let said = &finished.stderr;
    let refused = finished.code() == 1 && said.lines().count() == 1;
    ensure!(refused && said.contains("--follow: needs a kernel"), "{}: {said}", finished.code());
    Ok(())
}
