//! Syscall User Dispatch: the system call of a return probe would be passed to the program, and
//! kill it.

use crate::refusal;
use anyhow::{Context, Result, ensure};
use sampler_tests::pid_namespace::{PidNamespace, child_of, innermost_pid};
use sampler_tests::{Daemon, Profile, Truth, Workload, build, child, wait};

const SOURCE: &str = "dispatched.c";
/// Every allocation is sampled.
const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB"];

/// Runs a workload that waits at its mark to its end.
fn finish(workload: &mut Workload) -> Result<Truth> {
    workload.go()?;
    workload.truth()
}

/// Checks that every allocated byte of the program is counted, and that held bytes are those of
/// threads without dispatch. A note reports the rest.
fn seen(daemon: &Daemon, truth: &Truth, profile: &Profile) -> Result<()> {
    for of in &truth.functions {
        let row = profile.row(&of.name);
        let known = row.alloc_space.sum == of.alloc.bytes as f64;
        ensure!(known, "{}: {}\n{}", of.name, row.alloc_space.sum, profile.folded());
        let held = if of.name == "usual_blocks" { of.live.bytes as f64 } else { 0.0 };
        ensure!(row.inuse_space.sum == held, "{}: held {}", of.name, row.inuse_space.sum);
    }
    let unprobed = daemon.outcome("return_unprobed")?;
    ensure!(unprobed > 1000, "{unprobed} calls without a return probe");
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("held numbers are a lower bound"), "{notes}");
    Ok(())
}

fn survives(when: &str, arguments: &[&str]) -> Result<()> {
    let mut workload = Workload::start(SOURCE, &[when])?;
    let daemon = Daemon::start(&[workload.pid()], &[ALL, arguments].concat())?;
    let truth = finish(&mut workload).with_context(|| format!("dispatch {when}: killed"))?;
    let pid = workload.pid().to_string();
    let profile = daemon.profile("alloc", &["--pid", &pid])?;
    seen(&daemon, &truth, &profile).with_context(|| format!("dispatch {when}"))?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn session_probes_do_not_probe_returns_of_dispatched_threads() -> Result<()> {
    for when in ["before", "after", "thread"] {
        survives(when, &["--probe-engine", "session"])?;
    }
    Ok(())
}

#[test]
fn tree_probes_do_not_probe_returns_of_dispatched_threads() -> Result<()> {
    for when in ["thread", "child"] {
        survives(when, &["--follow"])?;
    }
    Ok(())
}

/// Here other processes may fill the ring.
#[test]
fn probes_of_all_processes_do_not_kill_dispatched_threads() -> Result<()> {
    let daemon = Daemon::start(&[], &["--all", "--interval", "16KiB"])?;
    for when in ["before", "after", "child"] {
        let mut workload = Workload::start(SOURCE, &[when])?;
        let truth = finish(&mut workload).with_context(|| format!("dispatch {when}: killed"))?;
        workload.exit()?;
        ensure!(truth.total().alloc.objects > 0, "{when}: nothing allocated");
    }
    let unprobed = daemon.outcome("return_unprobed")?;
    ensure!(unprobed > 0, "no call was decided");
    daemon.stop()
}

/// Multi and perf engines probe the return of every call.
#[test]
fn return_probing_engines_are_refused() -> Result<()> {
    let mut workload = Workload::start(SOURCE, &["before"])?;
    let pid = workload.pid().to_string();
    for engine in ["multi", "perf"] {
        for whom in [&["--pid", pid.as_str()][..], &["--all"]] {
            let line = refusal(&[&["--probe-engine", engine], whom].concat())?;
            let says = format!("pid {pid}: a return probe would kill it");
            ensure!(line.contains(&says), "{engine} {whom:?}: {line:?}");
        }
    }
    finish(&mut workload)?;
    workload.exit()
}

/// A daemon in a pid namespace uses the process's number in that namespace.
#[test]
fn return_probing_engines_are_refused_in_a_pid_namespace() -> Result<()> {
    let namespace = PidNamespace::start()?;
    let program = build::compile(SOURCE, &[])?;
    let mut workload = Workload::spawn(SOURCE, namespace.command(program).arg("before"))?;
    let pid = innermost_pid(child_of(workload.pid())?)?.to_string();
    let directory = tempfile::tempdir()?;
    let socket = format!("unix:{}", directory.path().join("socket").display());
    for engine in ["multi", "perf"] {
        for whom in [&["--pid", pid.as_str()][..], &["--all"]] {
            let mut daemon = namespace.command(build::program("samplerd")?);
            daemon.args(["--listen", &socket, "--probe-engine", engine]).args(whom);
            let finished = child::finish(&mut daemon)?;
            let says = format!("pid {pid}: a return probe would kill it");
            ensure!(finished.code() == 1, "{engine} {whom:?}: {}", finished.stderr);
            ensure!(finished.stderr.contains(&says), "{engine} {whom:?}: {}", finished.stderr);
        }
    }
    finish(&mut workload)?;
    workload.exit()
}

/// A session link of another process probes the returns of every process that hits its probes.
#[test]
fn a_dispatched_process_among_others_is_refused() -> Result<()> {
    let mut workload = Workload::start(SOURCE, &["before"])?;
    let mut other = Workload::edge(&["realloc"])?;
    let pids = [workload.pid().to_string(), other.pid().to_string()];
    let line = refusal(&["--pid", &pids[0], "--pid", &pids[1]])?;
    ensure!(line.contains(&pids[0]) && line.contains("profile it alone"), "{line:?}");
    finish(&mut workload)?;
    workload.exit()?;
    other.go()?;
    other.truth()?;
    other.exit()
}

/// From five processes on links are shared, and the decision is made for each call.
#[test]
fn a_dispatched_process_survives_shared_links() -> Result<()> {
    let mut workload = Workload::start(SOURCE, &["before"])?;
    let others: Vec<Workload> =
        (0..4).map(|_| Workload::edge(&["realloc"])).collect::<Result<_>>()?;
    let pids: Vec<u32> = others.iter().chain([&workload]).map(|workload| workload.pid()).collect();
    let daemon = Daemon::start(&pids, ALL)?;
    let truth = finish(&mut workload)?;
    let pid = workload.pid().to_string();
    let profile = wait::until("its profile", || {
        let profile = daemon.profile("alloc", &["--pid", &pid])?;
        Ok((profile.exact_space >= truth.total().alloc.bytes).then_some(profile))
    })?;
    seen(&daemon, &truth, &profile)?;
    workload.exit()?;
    daemon.stop()
}
