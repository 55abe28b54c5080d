//! Which process is charged for which hits, and which outputs show the cost.

use crate::own::{block, cost, number, range};
use crate::trial::TRIES;
use anyhow::{Context, Result, ensure};
use sampler_daemon::bpf::calibrate;
use sampler_tests::{Daemon, Workload, again, wait};

/// Counts each hit once, by role. The costs of the probes sum up to the cost of the process.
#[test]
fn every_role_is_charged() -> Result<()> {
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "4GiB"])?;
    block(&mut workload, "mix", 2_000)?;
    let (status, cost) = (daemon.status()?, cost(&daemon, workload.pid())?);
    let mut sum = 0.0;
    for (symbol, calls) in
        [("calloc", 2_000.0), ("realloc", 2_000.0), ("posix_memalign", 2_000.0), ("free", 4_000.0)]
    {
        let probes = status["probes"].as_array().context("no probes")?;
        let probe = probes.iter().find(|probe| probe["symbols"][0] == symbol);
        let probe = probe.with_context(|| format!("no {symbol} in {status}"))?;
        let (spent, ..) = range(&probe["spent_ns"], symbol)?;
        let (hit, ..) = range(&probe["hit_ns"], symbol)?;
        ensure!(probe["hits"]["value"] == calls, "{probe}");
        ensure!((spent / (hit * calls) - 1.0).abs() < 1e-6, "{probe}");
        sum += spent;
    }
    let (spent, ..) = range(&cost["spent_ns"], "spent_ns")?;
    ensure!(spent >= 0.999 * sum && spent < 1.2 * sum, "{spent} is not {sum}: {cost}");
    ensure!(cost["unpriced"] == 0 && cost["why"].is_null(), "{cost}");
    let (all, ..) = range(&status["cost"]["spent_ns"], "all")?;
    ensure!((all / spent - 1.0).abs() < 0.2, "{all} {spent}");
    daemon.stop()
}

/// CPU time of a process that only calls malloc and free, nanoseconds.
const USED_NS: f64 = 2e8;

/// Runs a process that only calls malloc and free. Returns the process with its daemon if the cost
/// is plausible, or else the reason. The prices were measured a moment before the calls.
fn charged() -> Result<Result<(Workload, Daemon), String>> {
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "64KiB"])?;
    let taken = number(&daemon.status()?["prices"]["taken_ns"], "taken_ns")?;
    let mut truly_used = 0.0;
    while truly_used < USED_NS {
        truly_used += block(&mut workload, "pairs", 20_000)?;
    }
    let profile = daemon.profile("alloc", &[])?;
    let cost = &profile.json["cost"];
    let (used, ..) = range(&cost["processor_ns"], "processor_ns")?;
    ensure!(used > USED_NS / 2.0, "{cost}");
    let (spent, low, high) = range(&cost["spent_ns"], "spent_ns")?;
    if cost["share"].is_null() {
        return Ok(Err(format!("more in probes than there was: {cost}")));
    }
    let (share, ..) = range(&cost["share"], "share")?;
    ensure!(taken > 1e5, "measuring took {taken} ns");
    // The measurement ends with the round in which its time is over. A round takes less than half
    // of that time.
    let most = 1.5 * calibrate::MAX_CPU_TIME.as_nanos() as f64;
    // How much of the caches a program evicts between two hits is unknown. Where the caches matter
    // most, a price is uncertain by ± a half or so.
    let is_narrow = low > 0.2 * spent && high < 2.0 * spent;
    let fits = is_narrow && share > 0.4 && share < 1.7 && taken < most;
    Ok(if fits { Ok((workload, daemon)) } else { Err(format!("taken {taken} ns, {cost}")) })
}

/// Every output of a profile or a process shows its cost.
#[test]
fn every_output_shows_the_cost() -> Result<()> {
    let (mut workload, daemon) = again::until("the cost of calls", TRIES, charged)?;
    let profile = daemon.profile("alloc", &[])?;
    let cost_of_profile = &profile.json["cost"];
    let for_samples = number(&cost_of_profile["daemon_ns"], "daemon_ns")?;
    ensure!(for_samples > 0.0, "{cost_of_profile}");
    // The daemon's start is not charged to any sample. Most of the start is the kernel's
    // verification of the eBPF programs.
    let status = daemon.status()?;
    let of_status = |key: &str| number(&status[key], key);
    let (used, starting) = (of_status("daemon_processor_ns")?, of_status("daemon_starting_ns")?);
    ensure!(starting > 1e7, "{starting} ns to start");
    ensure!(for_samples <= used - starting, "{for_samples} ns of {used}, {starting} to start");
    // The 99 % interval is wider than the 50 % interval.
    let width = |level: &str| -> Result<f64> {
        let profile = daemon.profile("alloc", &["--confidence", level])?;
        let (_, low, high) = range(&profile.json["cost"]["spent_ns"], level)?;
        Ok(high - low)
    };
    ensure!(width("0.99")? > 2.0 * width("0.5")?, "the interval knows no confidence");
    for (verb, words) in [
        (&["profile"][..], "of CPU time in probes"),
        (&["profile", "--format", "jeprof"], "# cost: "),
        (&["status"], "a hit: malloc "),
        (&["ps"], "of CPU time in probes"),
    ] {
        let text = daemon.sampler(verb)?.success("sampler")?.stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(text.contains(words), "{verb:?} does not say {words}:\n{text}");
        let is_table = !verb.contains(&"jeprof");
        let long = text.lines().find(|line| is_table && line.chars().count() > 80);
        ensure!(long.is_none(), "more than 80 columns: {long:?}");
    }
    let status = daemon.status()?;
    ensure!(number(&status["daemon_processor_ns"], "daemon")? > 1e6, "{status}");
    workload.child().close_stdin();
    workload.wait()?;
    daemon.stop()
}

#[test]
fn the_cost_of_an_exited_process_is_kept() -> Result<()> {
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "64KiB"])?;
    block(&mut workload, "pairs", 20_000)?;
    let before = cost(&daemon, workload.pid())?;
    workload.child().close_stdin();
    workload.wait()?;
    let after = wait::until("the exit", || {
        let listed = daemon.json("ps")?;
        let exited = listed["processes"][0]["state"] == "exited";
        Ok(exited.then(|| listed["processes"][0]["cost"].clone()))
    })?;
    daemon.stop()?;
    let [before, after] = [&before, &after].map(|cost| range(&cost["spent_ns"], "spent_ns"));
    let (before, after) = (before?.0, after?.0);
    ensure!(after >= 0.95 * before, "{after} ns of {before}");
    Ok(())
}

/// The hits of the calibration belong to no process. No count includes them.
#[test]
fn calibration_hits_are_in_no_count() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        nothing_is_counted(engine, &["--probe-engine", engine, "--interval", "1"])
            .with_context(|| engine.to_owned())?;
    }
    nothing_is_counted("shared", &["--follow", "--interval", "1"])
}

fn nothing_is_counted(what: &str, arguments: &[&str]) -> Result<()> {
    let workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], arguments)?;
    let status = daemon.status()?;
    let counted = status["outcomes"].as_object().context("no outcomes")?.iter();
    let counted: Vec<_> = counted.filter(|(_, count)| **count != 0).collect();
    ensure!(counted.is_empty(), "{what}: {counted:?}");
    ensure!(status["live_samples"] == 0, "{what}: {status}");
    for table in ["live", "pending", "rows", "lifetimes"] {
        ensure!(status["tables"][table]["used"] == 0, "{what}: {table}: {}", status["tables"]);
    }
    for probe in status["probes"].as_array().into_iter().flatten() {
        // The hits of functions that map memory are not counted.
        let hits = &probe["hits"];
        ensure!(hits.is_null() || hits["value"] == 0.0, "{what}: {probe}");
    }
    let profile = daemon.profile("alloc", &[])?;
    ensure!(profile.exact_objects == 0 && profile.samples == 0, "{what}: {}", profile.json);
    let cost = cost(&daemon, workload.pid())?;
    ensure!(cost["spent_ns"]["value"] == 0.0 && cost["daemon_ns"] == 0, "{what}: {cost}");
    daemon.stop()
}
