//! With every allocation sampled, the library's samples equal the workload's allocations, to the
//! byte. No sample is sent twice.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile, Truth, Workload, build, preload};
use std::process::Command;

/// The daemon's own probes would sample everything. The ring has room, however slow the daemon is.
pub(crate) const EVERYTHING: &[&str] = &["--interval", "1", "--ring", "256MiB"];

/// Checks objects and bytes, allocated and held, of all stacks with a function of the workload.
pub(crate) fn same(truth: &Truth, profile: &Profile) -> Result<()> {
    for function in &truth.functions {
        let row = profile.row(&function.name);
        for (what, ours, truth) in [
            ("alloc bytes", row.alloc_space.sum, function.alloc.bytes),
            ("alloc objects", row.alloc_objects.sum, function.alloc.objects),
            ("live bytes", row.inuse_space.sum, function.live.bytes),
            ("live objects", row.inuse_objects.sum, function.live.objects),
        ] {
            let name = &function.name;
            ensure!(
                ours == truth as f64,
                "{name}: {what} {ours}, truth {truth}\n{}",
                profile.folded()
            );
        }
    }
    Ok(())
}

fn judged(workload: &mut Workload, daemon: &Daemon) -> Result<()> {
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &["--pid", &workload.pid().to_string()])?;
    same(&truth, &profile)?;
    let strategy = profile.json["strategy"].to_string();
    ensure!(strategy.contains("external") && profile.json["exact"].is_null(), "{strategy}");
    Ok(())
}

#[test]
fn every_call_is_reported_once() -> Result<()> {
    for case in [&["keep", "1000"][..], &["realloc"], &["aligned"]] {
        let mut workload = preload::workload("edges.c", case, 1)?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        judged(&mut workload, &daemon).with_context(|| format!("{case:?}"))?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// Whatever allocator the library forwards to, the allocator is not probed as well.
#[test]
fn other_allocators_are_not_probed_as_well() -> Result<()> {
    for allocator in preload::ALLOCATORS {
        let mut workload = preload::behind("passed.c", &["500"], 1, Some(allocator))?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        judged(&mut workload, &daemon).with_context(|| allocator.to_string())?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// C++ operators that allocate and free by themselves, and those of libstdc++.
#[test]
fn operators_of_other_allocators_are_counted_once() -> Result<()> {
    for allocator in [None].into_iter().chain(preload::ALLOCATORS.iter().copied().map(Some)) {
        let mut workload = preload::behind("operators.cpp", &[], 1, allocator)?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        judged(&mut workload, &daemon).with_context(|| format!("{allocator:?}"))?;
        ensure!(daemon.outcome("library_late")? == 0, "ends were missed");
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// Eight threads free and reallocate blocks of other threads. When they rest, the live set equals
/// the held blocks.
#[test]
fn the_live_set_equals_the_held_blocks() -> Result<()> {
    for allocator in [None, Some("libjemalloc.so.2"), None] {
        let mut workload = preload::behind("passed.c", &["1100"], 1, allocator)?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        workload.go()?;
        let truth = workload.truth()?;
        ensure!(daemon.outcome("usdt_flood")? == 0, "more samples than a process may send");
        same(&truth, &daemon.profile("alloc", &[])?)?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// Two copies of the library: all samples come from the copy that samples. The daemon reads the
/// interval from that copy, whichever is lower in memory.
#[test]
fn samples_and_interval_are_those_of_one_copy() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = [preload::copy(directory.path())?, preload::library()?];
    // The loader maps files downwards, and upwards.
    for layout in ["-R", "-L"] {
        let mut command = Command::new("setarch");
        command.args([layout, "--"]).arg(build::compile("edges.c", &[])?);
        preload::load(command.args(["keep", "1000"]), 1, &files);
        let mut workload = Workload::spawn("edges.c", &mut command)?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        judged(&mut workload, &daemon).context(layout)?;
        let listed = daemon.json("ps")?;
        let process = listed["processes"].as_array().and_then(|all| all.first());
        let sampling = &process.context("not listed")?["sampling"];
        ensure!(sampling["preloaded"] == true && sampling["interval_bytes"] == 1.0, "{sampling}");
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// A process that is sampled from inside and a process with probes, under one daemon. Each has its
/// own numbers.
#[test]
fn preload_and_probes_count_the_same() -> Result<()> {
    let mut inside = preload::workload("edges.c", &["keep", "1000"], 1)?;
    let mut probed = Workload::edge(&["keep", "1000"])?;
    let daemon = Daemon::start(&[inside.pid(), probed.pid()], EVERYTHING)?;
    judged(&mut inside, &daemon)?;
    probed.go()?;
    let truth = probed.truth()?.total().alloc;
    let profile = daemon.profile("alloc", &["--pid", &probed.pid().to_string()])?;
    ensure!((profile.exact_objects, profile.exact_space) == (truth.objects, truth.bytes));
    let both = daemon.profile("alloc", &[])?.row("many_kept").alloc_space.sum;
    ensure!(both == 2.0 * truth.bytes as f64, "{both} of two processes");
    // The source of each process, and its cost.
    let listed = daemon.json("ps")?;
    for (pid, is_inside) in [(inside.pid(), true), (probed.pid(), false)] {
        let all = listed["processes"].as_array().context("no processes")?;
        let process = all.iter().find(|of| of["pid"] == pid).context("not listed")?;
        ensure!(process["samples_itself"] == is_inside, "{process}");
        ensure!(process["sampling"]["preloaded"] == is_inside, "{process}");
        let cost = &process["cost"];
        let of = |end: &str| cost["spent_ns"][end].as_f64().unwrap_or(f64::NAN);
        ensure!(0.0 <= of("low") && of("low") < of("value") && of("value") < of("high"), "{cost}");
        ensure!(cost["unpriced"] == 0, "{cost}");
        let profile = daemon.profile("alloc", &["--pid", &pid.to_string()])?;
        let notes = profile.json["notes"].to_string();
        ensure!(notes.contains("otel_memory") == is_inside, "{notes}");
    }
    inside.exit()?;
    probed.exit()?;
    daemon.stop()
}
