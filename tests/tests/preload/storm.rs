//! More samples than a process with the library may send. The library raises the interval by
//! itself, and lowers it again.

use anyhow::{Context, Result, ensure};
use sampler_common::sampling::Rate;
use sampler_daemon::inspect::process::preloaded::Preloaded;
use sampler_tests::{Daemon, Truth, Workload, preload, wait};
use serde_json::Value;
use std::fs::File;
use std::time::{Duration, Instant};

/// Mean bytes between samples. Blocks of 64 bytes in a tight loop give thousands of samples a
/// second.
const INTERVAL: u64 = 32 << 10;
/// Options with a limit for each process.
const LIMITED: [&str; 4] =
    ["--max-samples-per-second", "25000", "--max-samples-per-process", "2000"];
/// samplerd's default limit.
const DEFAULT: [&str; 2] = ["--max-samples-per-second", "25000"];
/// Largest number of samples a second of a process with the library, by default.
const PRELOADED: f64 = 1000.0;

/// A workload with blocks for some seconds of storm, which goes on until [`enough`].
fn workload() -> Result<Workload> {
    preload::workload("pressure.c", &["60000000", "1", "64", "storm"], INTERVAL)
}

/// A workload in its storm under samplerd, and its entry in `status` once its interval is raised.
fn storm(arguments: &[&str]) -> Result<(Workload, Daemon, Value)> {
    let mut workload = workload()?;
    let daemon = Daemon::start(&[workload.pid()], arguments)?;
    workload.go()?;
    let during = raised(&daemon)?;
    Ok((workload, daemon, during))
}

/// Runs the calm phase after the storm, to the end.
fn end(mut workload: Workload, daemon: Daemon) -> Result<()> {
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()
}

/// Ends the storm. Returns what was allocated in it.
fn enough(workload: &mut Workload) -> Result<Truth> {
    workload.child().send("enough")?;
    workload.truth()
}

/// The sampling of the process in `status`.
fn sampling(daemon: &Daemon) -> Result<Value> {
    let status = daemon.status()?;
    let one = status["intervals"].get(0);
    Ok(one.with_context(|| format!("nobody is in {status}"))?.clone())
}

fn interval(of: &Value) -> u64 {
    of["interval_bytes"].as_f64().unwrap_or_default().round() as u64
}

fn raised(daemon: &Daemon) -> Result<Value> {
    wait::until("a raised interval", || {
        let of = sampling(daemon)?;
        let is_raised = of["pressure"]["factor"].as_f64() > Some(1.0) && interval(&of) > INTERVAL;
        Ok(is_raised.then_some(of))
    })
}

fn as_requested(daemon: &Daemon) -> Result<Value> {
    wait::until("the interval that was asked for", || {
        let of = sampling(daemon)?;
        Ok((interval(&of) == INTERVAL).then_some(of))
    })
}

#[test]
fn the_interval_rises_in_a_storm_and_falls_afterwards() -> Result<()> {
    let (mut workload, daemon, during) = storm(&LIMITED)?;
    println!("{during}");
    ensure!(during["pressure"]["limit"] == "process", "{during}");
    let truth = enough(&mut workload)?.total();
    ensure!(daemon.outcome("usdt_flood")? == 0, "samples were lost");
    let profile = daemon.profile("live", &["--confidence", "0.999999999"])?;
    let samples_at_once = truth.alloc.bytes / INTERVAL;
    println!("{} samples instead of {samples_at_once}", profile.samples);
    ensure!(profile.samples * 10 < samples_at_once * 9, "{} samples", profile.samples);
    let totals = profile.totals;
    for (what, of, truth) in [
        ("allocated", totals.alloc_space, truth.alloc.bytes),
        ("held", totals.inuse_space, truth.live.bytes),
    ] {
        println!("{what}: {truth} in [{:.0}, {:.0}], {:.0}", of.low, of.high, of.value);
        ensure!(of.low <= truth as f64 && truth as f64 <= of.high, "{what}: {truth} not in {of:?}");
    }
    let after = as_requested(&daemon)?;
    ensure!(after["pressure"]["factor"].as_f64() == Some(1.0), "{after}");
    end(workload, daemon)
}

/// By default a process spends some 1 % of a CPU for samples, whatever it allocates.
#[test]
fn the_default_limit_holds_in_a_storm() -> Result<()> {
    let (mut workload, daemon, during) = storm(&DEFAULT)?;
    let status = daemon.status()?;
    ensure!(status["max_samples_per_preloaded"] == PRELOADED, "{status}");
    ensure!(during["pressure"]["limit"] == "process", "{during}");
    let mut before = (Instant::now(), daemon.outcome("sampled")?);
    wait::until("as many samples as may come", || {
        let elapsed = before.0.elapsed();
        if elapsed < Duration::from_millis(500) {
            return Ok(None);
        }
        let now = (Instant::now(), daemon.outcome("sampled")?);
        let rate = (now.1 - before.1) as f64 / elapsed.as_secs_f64();
        println!("{rate:.0} a second");
        before = now;
        Ok((rate > 0.0 && rate < 1.2 * PRELOADED).then_some(()))
    })?;
    let truth = enough(&mut workload)?.total();
    ensure!(daemon.outcome("usdt_flood")? == 0, "samples were lost");
    let profile = daemon.profile("live", &["--confidence", "0.999999999"])?;
    let of = profile.totals.alloc_space;
    ensure!(of.low <= truth.alloc.bytes as f64 && truth.alloc.bytes as f64 <= of.high, "{of:?}");
    end(workload, daemon)
}

/// The library's interval in force in the process, and the requested interval.
fn intervals(workload: &Workload) -> Result<(u64, u64)> {
    let path = preload::library()?;
    let file = File::open(&path).context("open the library")?;
    let library = Preloaded::find(&file).context("it is ours")?;
    let state = library.block(workload.pid(), &path.display().to_string())?.read()?;
    let bytes = |rate: Option<Rate>| rate.map_or(0, |rate| rate.interval_bytes().round() as u64);
    Ok((bytes(state.rate), bytes(state.requested)))
}

/// samplerd ends in the middle of a storm, or is killed. Without a listener, the process samples at
/// the requested interval again.
#[test]
fn an_ended_daemon_leaves_no_raised_interval() -> Result<()> {
    for signal in [15, 9] {
        let (mut workload, mut daemon, _) = storm(&LIMITED)?;
        daemon.child().signal(signal)?;
        daemon.child().wait()?;
        wait::until("the interval that was asked for", || {
            let (in_force, requested) = intervals(&workload)?;
            ensure!(requested == INTERVAL, "{requested} is asked for");
            Ok((in_force == requested).then_some(()))
        })?;
        enough(&mut workload)?;
        let next = Daemon::start(&[workload.pid()], &LIMITED)?;
        let of = sampling(&next)?;
        ensure!(interval(&of) == INTERVAL && of["pressure"].is_null(), "with the next one: {of}");
        end(workload, next)?;
    }
    Ok(())
}
