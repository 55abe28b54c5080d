//! The price of each kind of hit equals its measured cost.

use crate::own::{Own, block, number, range};
use crate::trial::{REAL, STEPPED, TRIES, Trial, agrees};
use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, again};
use serde_json::Value;

#[test]
fn the_session_cost_agrees_with_the_slowdown() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "session"])?;
    agrees("mix", 15_000, &["--probe-engine", "session"])?;
    agrees("large", 20_000, &["--probe-engine", "session", "--interval", "4GiB"])?;
    Ok(())
}

#[test]
fn the_multi_cost_agrees_with_the_slowdown() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "multi"])?;
    agrees("mix", 15_000, &["--probe-engine", "multi"])?;
    Ok(())
}

#[test]
fn the_perf_cost_agrees_with_the_slowdown() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "perf"])?;
    agrees("mix", 15_000, &["--probe-engine", "perf"])?;
    Ok(())
}

/// Real programs do not call in a loop. Between two hits, their code and data evict the kernel's
/// from the caches. The test prints the extra cost over the calibration, which docs/statistics.md
/// quotes.
#[test]
fn the_cost_of_real_programs_is_near_the_slowdown() -> Result<()> {
    for (interpreter, script, case, count) in [
        ("/usr/bin/python3", "cost.py", "parse", 12),
        ("/usr/bin/python3", "cost.py", "database", 20),
        ("/usr/bin/perl", "cost.pl", "words", 15),
    ] {
        let (mut plain, mut probed) =
            (Own::script(interpreter, script)?, Own::script(interpreter, script)?);
        let (plain, probed) = (&mut plain.workload, &mut probed.workload);
        Trial { case, count, factor: REAL, arguments: &[] }.holds(plain, probed)?;
    }
    Ok(())
}

/// Every allocation is a sample, and every free ends one.
#[test]
fn the_cost_of_samples_agrees_with_the_slowdown() -> Result<()> {
    let (mut plain, mut probed) = (Own::start()?, Own::start()?);
    let arguments = &["--interval", "1", "--ring-bytes", "64MiB"];
    let trial = Trial { case: "pairs", count: 2_000, factor: REAL, arguments };
    let status = trial.holds(&mut plain.workload, &mut probed.workload)?;
    let prices = &status["prices"];
    let (hit, ..) = range(&prices["hits"][0]["ns"], "a hit")?;
    let (sampled, ..) = range(&prices["sampled_ns"], "a sample")?;
    ensure!(sampled > hit, "{prices}");
    Ok(())
}

/// A process that samples itself pays only for its samples and their ends: each is a hit of a USDT
/// probe.
#[test]
fn the_cost_of_usdt_hits_agrees_with_the_slowdown() -> Result<()> {
    for arguments in [&["--ring-bytes", "64MiB"][..], &["--follow", "--ring-bytes", "64MiB"]] {
        let (mut plain, mut sampled) = (Own::preloaded()?, Own::preloaded()?);
        let trial = Trial { case: "pairs", count: 1_500, factor: REAL, arguments };
        let status = trial.holds(&mut plain.workload, &mut sampled.workload)?;
        ensure!(status["cost"]["unpriced"] == 0, "{}", status["cost"]);
        let probes = status["probes"].as_array().context("no probes")?;
        for role in ["otel_alloc", "otel_free"] {
            let hit = probes.iter().find(|of| of["role"] == role && of["hits"]["value"] != 0.0);
            range(&hit.with_context(|| status.to_string())?["spent_ns"], role)?;
        }
    }
    Ok(())
}

/// Shared links look up the calling process.
#[test]
fn the_cost_of_shared_links_agrees_with_the_slowdown() -> Result<()> {
    agrees("pairs", 40_000, &["--follow"])?;
    Ok(())
}

/// With the largest number of slots, the calibration's slot is the last one.
#[test]
fn samples_have_their_price_with_the_most_processes() -> Result<()> {
    let workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--follow", "--max-processes", "4096"])?;
    let prices = daemon.status()?["prices"].take();
    let (hit, ..) = range(&prices["hits"][0]["ns"], "a hit")?;
    let (returned, ..) = range(&prices["returned_ns"], "a return")?;
    let (sampled, ..) = range(&prices["sampled_ns"], "a sample")?;
    // A return is a trap as well. The return of a call that is not followed would cost nothing.
    ensure!(returned > 0.1 * hit && sampled > 0.1 * hit, "{prices}");
    daemon.stop()
}

/// Functions in which the kernel emulates no instruction.
#[test]
fn the_cost_of_single_stepped_probes_agrees_with_the_slowdown() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let spec = Own::spec(directory.path())?;
    let program = Own::stripped(directory.path())?;
    let start = || Workload::start_program(&program, &[]);
    let (mut plain, mut probed) = (start()?, start()?);
    let arguments = &["--allocator-spec", &*spec];
    let trial = Trial { case: "own", count: 1_000, factor: STEPPED, arguments };
    again::until("prices of both kinds", TRIES, || {
        Ok(match trial.attempt(&mut plain, &mut probed)? {
            Ok(status) => stepping_costs_more(&status)?,
            Err(miss) => Err(miss),
        })
    })
}

/// The kernel emulates one malloc of the process, and single-steps another. Each hit has its own
/// price, and its own count.
#[test]
fn hits_of_one_role_are_separated_by_price() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let spec = Own::spec(directory.path())?;
    let mut program = Own::start()?;
    let daemon = Daemon::start(&[program.workload.pid()], &["--allocator-spec", &spec])?;
    block(&mut program.workload, "pairs", 2_000)?;
    block(&mut program.workload, "own", 500)?;
    let status = daemon.status()?;
    daemon.stop()?;
    let probes = status["probes"].as_array().context("no probes")?;
    let named = |name: &str| {
        let is_its = |probe: &&Value| probe["symbols"][0] == name;
        probes.iter().find(is_its).with_context(|| format!("no probe of {name}: {status}"))
    };
    for (name, emulated, hits) in [
        ("malloc", true, 2_000.0),
        ("free", true, 2_000.0),
        ("own_alloc", false, 500.0),
        ("own_free", false, 500.0),
    ] {
        let probe = named(name)?;
        ensure!(probe["emulated"] == emulated, "{probe}");
        let counted = number(&probe["hits"]["value"], "hits")?;
        ensure!(counted == hits && probe["hits"]["high"] == hits, "{probe}");
        let (hit, ..) = range(&probe["hit_ns"], "a hit")?;
        let (spent, ..) = range(&probe["spent_ns"], "spent on a probe")?;
        ensure!((spent / (hits * hit) - 1.0).abs() < 0.01, "{probe}");
    }
    Ok(())
}

/// Checks that single-stepped hits have a price of their own. Returns the reason if that is
/// doubtful.
fn stepping_costs_more(status: &Value) -> Result<Result<(), String>> {
    let probes = status["probes"].as_array().context("no probes")?;
    ensure!(probes.len() == 2, "{status}");
    let emulated = &status["prices"]["hits"][0];
    ensure!(emulated["emulated"] == true, "{emulated}");
    let (middle, _, dearest) = range(&emulated["ns"], "an emulated hit")?;
    for probe in probes {
        let (stepped, cheapest, _) = range(&probe["hit_ns"], "a single-stepped hit")?;
        let (spent, low, high) = range(&probe["spent_ns"], "spent on a probe")?;
        let costs_more = cheapest > dearest && stepped > 1.5 * middle;
        if !costs_more || low <= 0.5 * spent || high >= 2.0 * spent {
            return Ok(Err(format!("{probe}: {emulated}")));
        }
    }
    Ok(Ok(()))
}
