//! The interval changes while a process is profiled. Each row covers what the process did at either
//! interval.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::{Quantity, Stack, interval};
use sampler_tests::truth::Function;
use sampler_tests::{Daemon, Profile, Truth, Workload};
use serde_json::Value;

/// Confidence of every interval. Fewer than 2,000 intervals are compared.
const CONFIDENCE: &str = "0.999999999";
const LEVEL: f64 = 0.999_999_999;

const SHORT: f64 = 65536.0;
const LONG: f64 = 16_777_216.0;

/// Size class of the blocks, 16 KiB.
const CLASS: u64 = 11;

/// Runs `rates.c` at 64 KiB, then at 16 MiB, then perhaps at 64 KiB again. `blocks` are the blocks
/// of each function by phase.
fn run(blocks: &[&str]) -> Result<(Daemon, Workload, Vec<Truth>)> {
    let mut workload = Workload::start("rates.c", blocks)?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "64KiB"])?;
    let mut truths = Vec::new();
    for (phase, _) in blocks.iter().enumerate() {
        if phase > 0 {
            let interval = if phase % 2 == 1 { "16MiB" } else { "64KiB" };
            daemon.sampler(&["set", "--interval", interval])?.success("sampler set")?;
        }
        workload.go()?;
        truths.push(workload.truth()?);
    }
    Ok((daemon, workload, truths))
}

/// The one stack of a function, if it has a sample.
fn stack<'a>(profile: &'a Profile, function: &'a Function) -> Result<Option<&'a Stack>> {
    let mut stacks = profile.stacks_of(&function.name);
    let first = stacks.next();
    ensure!(stacks.next().is_none(), "{} has several stacks: {}", function.name, profile.folded());
    Ok(first)
}

/// The four numbers of a stack with their truths.
fn numbers(stack: &Stack, function: &Function) -> [(&'static str, Quantity, f64); 4] {
    let (of, alloc, live) = (&stack.quantities, &function.alloc, &function.live);
    [
        ("allocated bytes", of.alloc_space, alloc.bytes as f64),
        ("allocated objects", of.alloc_objects, alloc.objects as f64),
        ("bytes held", of.inuse_space, live.bytes as f64),
        ("objects held", of.inuse_objects, live.objects as f64),
    ]
}

/// Checks that intervals cover every number of every function. Returns how many would not if all
/// samples had been taken at one interval.
fn covers(profile: &Profile, truth: &Truth) -> Result<usize> {
    let mut missed_without_epochs = 0;
    for function in &truth.functions {
        let Some(stack) = stack(profile, function)? else { continue };
        for (what, of, truth) in numbers(stack, function) {
            let inside = of.low <= truth * (1.0 + 1e-9) && truth <= of.high * (1.0 + 1e-9);
            let samples = of.moments.samples;
            ensure!(
                inside,
                "{}, {what}: [{}, {}] of {samples} samples does not cover {truth}",
                function.name,
                of.low,
                of.high
            );
            // Only allocated bytes count here: held blocks need a sample of their own.
            if what == "allocated bytes" {
                missed_without_epochs +=
                    usize::from(interval(&of.moments, LONG, LEVEL)?.high < truth);
            }
        }
    }
    Ok(missed_without_epochs)
}

/// Bytes of all functions that were allocated at each interval, by falling interval, from the
/// profile.
fn by_rate(profile: &Profile) -> Result<Vec<(f64, u64)>> {
    let strata = profile.json["reference"]["strata"].as_array().context("no strata")?;
    let of_class = strata.iter().find(|of| of["class"] == CLASS).context("no such class")?;
    let epochs = of_class["epochs"].as_array().context("no epochs")?;
    let mut epochs: Vec<(f64, u64)> = epochs
        .iter()
        .map(|of| {
            let interval = of["alloc"]["bytes"].as_f64().context("no interval")?;
            Ok((interval, of["exact"]["alloc_space"].as_u64().context("no bytes")?))
        })
        .collect::<Result<_>>()?;
    epochs.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(epochs)
}

fn bytes(truth: &Truth) -> u64 {
    truth.total().alloc.bytes
}

/// Each function allocates 1.25 MiB at 64 KiB and 16 MiB at 16 MiB. At the larger interval more
/// than a third of the functions have no sample.
#[test]
fn rows_cover_the_truth_at_the_longer_interval() -> Result<()> {
    let (daemon, mut workload, truths) = run(&["80", "1024"])?;
    let [short, both] = truths.as_slice() else { anyhow::bail!("{truths:?}") };
    let all: [&[&str]; 5] = [
        &[],
        &["--estimator", "failed-trials"],
        &["--estimator", "calibrated"],
        &["--last", "5m"],
        &["--last", "5m", "--estimator", "calibrated"],
    ];
    for options in all {
        for kind in ["alloc", "live"] {
            let profile =
                daemon.profile(kind, &[options, &["--confidence", CONFIDENCE]].concat())?;
            let missed = covers(&profile, both).with_context(|| format!("{kind} {options:?}"))?;
            // The chance that fewer than 3 of 48 functions have no sample is below 10⁻⁶.
            ensure!(
                missed >= 3 || kind == "live",
                "{missed} of the functions would have been missed: the test shows nothing"
            );
            ensure!(profile.exact_space == bytes(both), "exact bytes {}", profile.exact_space);
            // The bytes by interval add up to the totals, to the byte.
            let rates = by_rate(&profile).with_context(|| format!("{kind} {options:?}"))?;
            let [(long, at_long), (first, at_first)] = rates.as_slice() else {
                anyhow::bail!("{kind} {options:?}: {rates:?}")
            };
            ensure!(
                (long / LONG - 1.0).abs() < 1e-3 && (first / SHORT - 1.0).abs() < 1e-3,
                "{rates:?}"
            );
            ensure!(
                (*at_first, *at_long) == (bytes(short), bytes(both) - bytes(short)),
                "{rates:?}"
            );
        }
    }
    listed_as_in_the_profile(&daemon)?;
    workload.exit()?;
    daemon.stop()
}

/// The list of processes has the intervals of the profile. Allocations at the larger interval are
/// in both.
fn listed_as_in_the_profile(daemon: &Daemon) -> Result<()> {
    let profile = daemon.profile("live", &[])?;
    let list = daemon.json("ps")?;
    for quantity in ["inuse_space", "inuse_objects", "alloc_space"] {
        let end = |of: &Value| of["totals"][quantity]["high"].as_f64().context("no upper end");
        let (in_profile, listed) = (end(&profile.json)?, end(&list["processes"][0])?);
        ensure!(
            (listed / in_profile - 1.0).abs() < 1e-9,
            "{quantity}: {listed} listed, {in_profile} in the profile"
        );
    }
    Ok(())
}

/// A short time at a large interval widens a row by no more than the bytes allocated in that time.
#[test]
fn a_short_time_at_a_long_interval_widens_rows_little() -> Result<()> {
    let (daemon, mut workload, truths) = run(&["80", "1", "80"])?;
    let [first, second, all] = truths.as_slice() else { anyhow::bail!("{truths:?}") };
    let between = (bytes(second) - bytes(first)) as f64;
    let profile = daemon.profile("alloc", &["--confidence", CONFIDENCE])?;
    covers(&profile, all)?;
    for function in &all.functions {
        let stack = stack(&profile, function)?.context("a function has no sample")?;
        let of = stack.quantities.alloc_space;
        // One of the 48 blocks may have been sampled at the large interval.
        if of.moments.largest < 2.0 * SHORT {
            let most = interval(&of.moments, SHORT, LEVEL)?.high + between + SHORT;
            ensure!(of.high <= most, "{}: {} is above {most}", function.name, of.high);
        }
    }
    workload.exit()?;
    daemon.stop()
}
