//! Lifetimes of a program's blocks, compared with what the program reports as freed. Every
//! allocation is sampled.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Truth, Workload, again, wait};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longest time of a phase. Blocks that are freed in such a phase have lived for less than a
/// second.
const PHASE: Duration = Duration::from_millis(500);
/// How often a process is run until all of its phases are short enough, and how often clocks are
/// read until two readings are close.
const TRIES: usize = 20;

/// Sums over the rows of a function's stacks: samples, freed, held.
fn counts(json: &Value, function: &str) -> Result<[u64; 3]> {
    let stacks = json["stacks"].as_array().context("no stacks")?;
    let of = stacks.iter().filter(|stack| {
        stack["frames"]
            .as_array()
            .is_some_and(|frames| frames.iter().any(|frame| frame == function))
    });
    let mut sum = [0; 3];
    for stack in of {
        for (sum, key) in sum.iter_mut().zip(["samples", "freed", "held"]) {
            *sum += stack[key].as_u64().with_context(|| format!("no {key} in {stack}"))?;
        }
    }
    Ok(sum)
}

/// A number with the ends of its interval.
fn interval(json: &Value, key: &str) -> Result<[f64; 3]> {
    let of = |end: &str| json[key][end].as_f64().with_context(|| format!("no {key}.{end}: {json}"));
    Ok([of("value")?, of("low")?, of("high")?])
}

fn fates_are_true(json: &Value, truth: &Truth, held: bool) -> Result<()> {
    for name in ["first", "second", "third"] {
        let of = truth.function(name)?;
        let freed = of.alloc.objects - of.live.objects;
        let expected = [of.alloc.objects, freed, if held { of.live.objects } else { 0 }];
        let got = counts(json, name)?;
        ensure!(got == expected, "{name}: {got:?}, not {expected:?}");
    }
    // Freed blocks lived for less than their phase, and all others were watched longer. The curve
    // is the plain share.
    let (mut allocated, mut freed) = (0, 0);
    for name in ["first", "second", "third"] {
        let of = truth.function(name)?;
        allocated += of.alloc.bytes;
        freed += of.alloc.bytes - of.live.bytes;
    }
    let share = freed as f64 / allocated as f64;
    let [value, low, high] = interval(&json["total"], "within_1s")?;
    ensure!((value - share).abs() < 1e-9, "freed within a second: {value}, not {share}");
    ensure!(low <= share && share <= high, "{share} is not in {low} to {high}");
    Ok(())
}

/// A process after its phases, or the duration of a phase that took too long.
fn phases() -> Result<Result<(Workload, Daemon, Truth), String>> {
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    let mut truth = None;
    for _ in 0..3 {
        let start = Instant::now();
        workload.go()?;
        truth = Some(workload.truth()?);
        let took = start.elapsed();
        if took > PHASE {
            return Ok(Err(format!("{took:?}")));
        }
    }
    Ok(Ok((workload, daemon, truth.context("no phase")?)))
}

/// The byte-seconds of held memory grow with every second, and are certain. The error is the
/// difference to the expectation.
fn held_costs(daemon: &Daemon, before: &Value, held: u64) -> Result<Result<(), String>> {
    let later = daemon.json("lifetimes")?;
    let time = |of: &Value| of["time_unix_ns"].as_u64().context("no time");
    let seconds = (time(&later)? - time(before)?) as f64 / 1e9;
    let after = interval(&later["total"], "byte_seconds")?;
    ensure!(after[1] == after[0] && after[2] == after[0], "certain: {after:?}");
    let grown = after[0] - interval(&before["total"], "byte_seconds")?[0];
    let expected = held as f64 * seconds;
    // The two clocks are read one after the other.
    let fits = (grown / expected - 1.0).abs() < 0.01;
    Ok(if fits { Ok(()) } else { Err(format!("grown by {grown}, not {expected}")) })
}

#[test]
fn lifetimes_are_those_of_the_program() -> Result<()> {
    let (mut workload, daemon, truth) = again::until("phases that are short", TRIES, phases)?;
    wait::pass(Duration::from_millis(1100));
    let json = daemon.json("lifetimes")?;
    fates_are_true(&json, &truth, true)?;
    let held: u64 = ["first", "second", "third"]
        .iter()
        .map(|name| truth.function(name).map(|of| of.live.bytes))
        .sum::<Result<u64>>()?;
    again::until("byte-seconds", TRIES, || held_costs(&daemon, &json, held))?;
    let text = daemon.sampler(&["lifetimes", "--top", "3"])?.success("lifetimes")?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    ensure!(text.contains("(all)") && text.contains("third ← main"), "{text}");
    // Blocks of a program that has ended were not freed.
    workload.exit()?;
    let gone = |profile: &sampler_tests::Profile| profile.totals.inuse_space.value == 0.0;
    daemon.profile_where("the exit", "live", &[], gone)?;
    fates_are_true(&daemon.json("lifetimes")?, &truth, false)?;
    daemon.stop()
}

#[test]
fn held_bytes_are_unknown_without_free_probes() -> Result<()> {
    let workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--no-live"])?;
    let kinds = ["live", "peak"].map(|kind| ["profile", "--kind", kind]);
    for arguments in [&["lifetimes"][..], &kinds[0], &kinds[1]] {
        let refused = daemon.sampler(arguments)?;
        ensure!(refused.code() == 1 && refused.stderr.lines().count() == 1, "{}", refused.stderr);
        ensure!(refused.stderr.contains("--no-live"), "{}", refused.stderr);
    }
    let text = daemon.sampler(&["profile"])?.success("profile")?.stdout;
    let text = String::from_utf8(text)?;
    ensure!(text.contains("held      not known: frees are not probed"), "{text}");
    for extra in [&[][..], &["--estimator", "failed-trials"]] {
        let profile = daemon.profile("alloc", extra)?;
        let held = &profile.json["totals"]["inuse_space"];
        ensure!(held["value"] == 0.0 && held["high"].is_null(), "{held}");
    }
    // The list of processes has no upper end of the held bytes either.
    let held = &daemon.json("ps")?["processes"][0]["totals"]["inuse_space"];
    ensure!(held["value"] == 0.0 && held["high"].is_null(), "{held}");
    let list = String::from_utf8(daemon.sampler(&["ps"])?.success("ps")?.stdout)?;
    let line = list.lines().find(|line| line.contains("windows")).context("not listed")?;
    ensure!(line.split_whitespace().any(|word| word == "-"), "{list}");
    daemon.stop()
}
