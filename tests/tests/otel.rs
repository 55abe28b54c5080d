//! Processes that sample their own allocations and report the samples (OpenTelemetry's
//! `otel_memory` probes).
//!
//! samplerd takes the reports unchanged: totals equal the sums that the workload prints, to the
//! byte.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::Row;
use sampler_tests::truth::TrueSums;
use sampler_tests::{Daemon, Profile, Truth, Workload, build};
use serde_json::Value;
use std::process::Command;

/// Room for all samples, however late the daemon reads them.
const ROOM: &[&str] = &["--ring", "256MiB"];
/// Options with which our own probes sample every allocation.
const EVERYTHING: &[&str] = &["--interval", "1", "--ring", "256MiB"];

fn library(source: &str) -> Result<String> {
    let path = build::compile(source, &["-shared", "-fPIC"])?;
    path.to_str().map(str::to_owned).context("path is not UTF-8")
}

/// The workload. It loads its library before it waits for [`Workload::go`] (`early`), or after that
/// (`late`).
fn workload(when: &str, case: &str) -> Result<Workload> {
    Workload::start("otel.c", &[&library("otelarena.c")?, when, case])
}

/// Compares the sums of moments with those that the program prints. A sample of size s and weight w
/// counts for w/s objects, which is not always a whole number in binary.
fn is_as_said(name: &str, row: &Row, alloc: &TrueSums, live: &TrueSums) -> Result<()> {
    for (what, ours, truth) in [
        ("alloc bytes", row.alloc_space.sum, alloc.bytes),
        ("alloc objects", row.alloc_objects.sum, alloc.objects),
        ("live bytes", row.inuse_space.sum, live.bytes),
        ("live objects", row.inuse_objects.sum, live.objects),
    ] {
        let truth = truth as f64;
        ensure!((ours - truth).abs() <= truth * 1e-12, "{name}: {what} {ours} is not {truth}");
    }
    Ok(())
}

fn rows(truth: &Truth, profile: &Profile) -> Result<()> {
    for function in &truth.functions {
        is_as_said(&function.name, &profile.row(&function.name), &function.alloc, &function.live)
            .with_context(|| profile.folded())?;
    }
    Ok(())
}

/// Checks that the leaf is the function of the probe, followed by its callers.
fn leaf(profile: &Profile, function: &str, caller: &str) -> Result<()> {
    let stack = profile.stacks_of(caller).next().with_context(|| profile.folded())?;
    let frames: Vec<&str> = stack.frames.iter().rev().map(String::as_str).collect();
    ensure!(frames.starts_with(&[function, caller, "main"]), "{frames:?}");
    Ok(())
}

/// The `hits` of each probe with this role.
fn hits(daemon: &Daemon, role: &str) -> Result<Vec<f64>> {
    let status = daemon.status()?;
    let probes = status["probes"].as_array().context("no probes")?;
    let of_role = probes.iter().filter(|probe| probe["role"] == role);
    of_role.map(|probe| probe["hits"]["value"].as_f64().context("no hits")).collect()
}

fn plain(when: &str) -> Result<()> {
    let mut workload = workload(when, "plain")?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    rows(&truth, &profile)?;
    leaf(&profile, "arena_alloc", "sampled_kept")?;
    leaf(&profile, "arena_alloc_small", "sampled_small")?;
    ensure!(profile.json["exact"].is_null(), "{}", profile.json["exact"]);
    let process = &daemon.json("ps")?["processes"][0];
    ensure!(process["exact"].is_null() && process["samples_itself"] == true, "{process}");
    // A group with other processes has no exact totals either.
    let groups = daemon.sampler(&["ps", "--by", "comm", "--json"])?.success("ps")?;
    let groups: Value = serde_json::from_slice(&groups.stdout)?;
    let group = &groups["groups"][0];
    ensure!(group["exact"].is_null() && group["samples"].as_u64() > Some(0), "{groups}");
    ensure!(hits(&daemon, "otel_alloc")?.contains(&1100.0), "{:?}", hits(&daemon, "otel_alloc"));
    ensure!(hits(&daemon, "otel_free")? == [400.0], "{:?}", hits(&daemon, "otel_free"));
    workload.exit()?;
    daemon.stop()
}

#[test]
fn weights_of_a_self_sampling_arena_are_unchanged() -> Result<()> {
    plain("early")
}

#[test]
fn weights_of_a_later_loaded_arena_are_unchanged() -> Result<()> {
    plain("late")
}

/// Moments carry the Horvitz–Thompson variance of the given weights.
#[test]
fn intervals_have_the_variance_of_the_weights() -> Result<()> {
    let mut workload = workload("early", "plain")?;
    let daemon = Daemon::start(&[workload.pid()], ROOM)?;
    workload.go()?;
    workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let row = profile.row("sampled_small");
    // 100 samples of 40 bytes, each with a weight of 4,000 bytes: π = 1/100.
    ensure!((row.alloc_space.variance / (100.0 * 4000.0 * 4000.0 * 0.99) - 1.0).abs() < 1e-9);
    ensure!((row.alloc_objects.variance / (100.0 * 100.0 * 100.0 * 0.99) - 1.0).abs() < 1e-9);
    ensure!(row.alloc_space.largest_inclusion == 0.01, "{row:?}");
    // A request for the calibrated estimator gets the weighted one for this process, and a note
    // says so. The failed-trials estimator is refused.
    let calibrated = daemon.profile("alloc", &["--estimator", "calibrated"])?;
    let notes = calibrated.json["notes"].to_string();
    ensure!(notes.contains("weighted, not calibrated"), "{notes}");
    let refused = daemon.sampler(&["profile", "--estimator", "failed-trials"])?;
    ensure!(refused.stderr.contains("external"), "{}", refused.stderr);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn semaphores_are_raised_while_a_listener_is_attached() -> Result<()> {
    let semaphores = |workload: &mut Workload| -> Result<u64> {
        Ok(workload.truth()?.function("semaphores")?.alloc.objects)
    };
    let mut first = workload("early", "semaphore")?;
    let daemon = Daemon::start(&[first.pid()], EVERYTHING)?;
    let mut other = workload("early", "semaphore")?;
    first.go()?;
    // Three probes of allocations share one semaphore, and the probe of frees has its own.
    ensure!(semaphores(&mut first)? == 4);
    other.go()?;
    ensure!(semaphores(&mut other)? == 0, "a process that is not profiled");
    daemon.stop()?;
    first.go()?;
    ensure!(semaphores(&mut first)? == 0, "nobody listens any more");
    // samplerd behaves as if there were no such probes.
    let daemon = Daemon::start(&[other.pid()], &["--interval", "1", "--no-usdt"])?;
    other.go()?;
    ensure!(semaphores(&mut other)? == 0, "--no-usdt");
    ensure!(hits(&daemon, "otel_alloc")?.is_empty());
    first.exit()?;
    other.exit()?;
    daemon.stop()
}

#[test]
fn impossible_values_are_refused_and_counted() -> Result<()> {
    let mut workload = workload("early", "hostile")?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?;
    let said = &truth.function("hostile")?.alloc;
    ensure!(daemon.outcome("usdt_refused")? == said.objects);
    let profile = daemon.profile("alloc", &[])?;
    let space = &profile.totals.alloc_space;
    ensure!((space.moments.samples, space.value) == (1, said.bytes as f64), "{space:?}");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_flood_is_cut_and_counted_and_leaves_others_room() -> Result<()> {
    let mut flood = workload("early", "flood")?;
    let mut quiet = Workload::edge(&["keep", "1000"])?;
    // A sample that is lost in the ring is neither in the profile nor in `usdt_flood`.
    let daemon = Daemon::start(&[flood.pid(), quiet.pid()], EVERYTHING)?;
    flood.go()?;
    let sent = flood.truth()?.function("flood")?.alloc.objects;
    quiet.go()?;
    let truth = quiet.truth()?;
    let (flooded, pid) = (daemon.outcome("usdt_flood")?, flood.pid().to_string());
    let profile = daemon.profile("alloc", &["--pid", &pid])?;
    ensure!(flooded > 0 && profile.samples + flooded == sent, "{flooded} and {}", profile.samples);
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("lower bound") && notes.contains("usdt_flood"), "{notes}");
    let profile = daemon.profile("alloc", &["--pid", &quiet.pid().to_string()])?;
    rows(&truth, &profile)?;
    ensure!(!profile.json["notes"].to_string().contains("usdt_flood"), "it is not its flood");
    flood.exit()?;
    quiet.exit()?;
    daemon.stop()
}

/// A workload under a preloaded shim that samples allocations itself, in front of glibc's malloc.
fn shimmed() -> Result<Workload> {
    let mut command = Command::new(build::compile("edges.c", &[])?);
    command.args(["keep", "1000"]).env("LD_PRELOAD", library("otelshim.c")?);
    Workload::spawn("a shim", &mut command)
}

/// Checks that no allocation is counted twice, and that a glibc process in the same daemon is
/// profiled as usual.
fn beside_each_other(all: bool) -> Result<()> {
    let (mut shimmed, mut plain) = (shimmed()?, Workload::edge(&["keep", "1000"])?);
    let daemon = match all {
        true => Daemon::start(&[], &[&["--all", "--interval", "16KiB"], ROOM].concat())?,
        false => Daemon::start(&[shimmed.pid(), plain.pid()], EVERYTHING)?,
    };
    shimmed.go()?;
    plain.go()?;
    let (truth, other) = (shimmed.truth()?, plain.truth()?);
    let of = |workload: &Workload| daemon.profile("alloc", &["--pid", &workload.pid().to_string()]);
    let profile = of(&shimmed)?;
    rows(&truth, &profile)?;
    let strategies = profile.json["strategy"].to_string();
    ensure!(strategies.contains("external"), "{strategies}");
    let profile = of(&plain)?;
    let exact = other.total().alloc;
    ensure!((profile.exact_objects, profile.exact_space) == (exact.objects, exact.bytes));
    if !all {
        rows(&other, &profile)?;
        // Both processes are in one profile.
        let both = daemon.profile("alloc", &[])?.row("many_kept").alloc_space.sum;
        ensure!(both == (truth.total().alloc.bytes + exact.bytes) as f64, "{both}");
    }
    shimmed.exit()?;
    plain.exit()?;
    daemon.stop()
}

#[test]
fn a_shim_and_glibc_are_counted_once() -> Result<()> {
    beside_each_other(false)
}

#[test]
fn a_shim_and_glibc_are_counted_once_with_shared_links() -> Result<()> {
    beside_each_other(true)
}

/// A request for another interval does not change a process that samples itself. The answer says
/// so.
#[test]
fn a_self_sampling_process_keeps_its_interval() -> Result<()> {
    let mut shimmed = shimmed()?;
    let daemon = Daemon::start(&[shimmed.pid()], EVERYTHING)?;
    let set = daemon.sampler(&["set", "--interval", "4096"])?.success("sampler set")?;
    let said = String::from_utf8_lossy(&set.stdout).into_owned();
    ensure!(said.contains("samples by itself"), "{said}");
    shimmed.go()?;
    rows(&shimmed.truth()?, &daemon.profile("alloc", &[])?)?;
    shimmed.exit()?;
    daemon.stop()
}
