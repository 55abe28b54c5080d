//! Each engine, forced: the engine must really run, and give the same right numbers.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build};

fn rung(engine: &str) -> Result<()> {
    for case in ["realloc", "aligned", "odd"] {
        rung_of(engine, case).with_context(|| format!("{engine}, case {case}"))?;
    }
    Ok(())
}

fn rung_of(engine: &str, case: &str) -> Result<()> {
    let mut workload = Workload::edge(&[case])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--probe-engine", engine])?;
    let status = daemon.status()?;
    ensure!(status["probe_engine"] == engine, "forced {engine}, status says {status}");
    let probes = status["probes"].as_array().map_or(0, Vec::len);
    ensure!(probes >= 8, "too few probes: {status}");
    workload.go()?;
    let functions = workload.truth()?;
    let truth = functions.total();
    let profile = daemon.profile("alloc", &[])?;
    // Stacks are whole with every engine, also of nested calls, whose outer call has a return
    // probe.
    for function in &functions.functions {
        let row = profile.row(&function.name);
        let (ours, theirs) = (row.alloc_space.sum, function.alloc.bytes as f64);
        ensure!(ours == theirs, "{}: {ours} is not {theirs}\n{}", function.name, profile.folded());
    }
    ensure!(profile.exact_space == truth.alloc.bytes, "exact {}", profile.exact_space);
    ensure!(profile.exact_objects == truth.alloc.objects, "exact {}", profile.exact_objects);
    ensure!(profile.totals.inuse_space.value == truth.live.bytes as f64, "{}", profile.folded());
    workload.exit()?;
    daemon.stop()
}

#[test]
fn session_runs_when_forced() -> Result<()> {
    rung("session")
}

#[test]
fn multi_runs_when_forced() -> Result<()> {
    rung("multi")
}

#[test]
fn perf_runs_when_forced() -> Result<()> {
    rung("perf")
}

#[test]
fn every_probe_names_its_instruction() -> Result<()> {
    let workload = Workload::edge(&["realloc"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    let status = daemon.status()?;
    for probe in status["probes"].as_array().into_iter().flatten() {
        for key in ["path", "role", "instruction", "reason"] {
            let text = probe[key].as_str().unwrap_or_default();
            ensure!(!text.is_empty(), "no {key} in {probe}");
        }
    }
    daemon.stop()
}

/// A return probe on a function that throws ends the process. None of our probes may end it.
#[test]
fn a_failing_new_is_harmless_on_every_engine() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        let mut workload = Workload::start("newfail.cpp", &[])?;
        let daemon =
            Daemon::start(&[workload.pid()], &["--interval", "1", "--probe-engine", engine])?;
        workload.go()?;
        workload.truth()?;
        let profile = daemon.profile("alloc", &[])?;
        let seen = profile
            .stacks
            .iter()
            .any(|stack| stack.contains("main") && stack.quantities.inuse_space.value == 1234.0);
        ensure!(seen, "{engine}: allocation after the failures is not seen\n{}", profile.folded());
        workload.child().send("exit")?;
        ensure!(workload.child().line()? == "survived", "{engine}: it did not survive");
        ensure!(workload.wait()?.success(), "{engine}: it ended badly");
        daemon.stop()?;
    }
    build::require_root()
}
