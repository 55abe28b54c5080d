//! A samplerd that got no CPU for a while. The interval rises a little, samples of that time have
//! no ruinous weight, and the head of the profile reports the pause.

use anyhow::{Context, Result, ensure};
use sampler_common::sampling::ring_pressure::MAX_FACTOR;
use sampler_common::units::utc;
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTERVAL: f64 = 8192.0;
const SIZE: f64 = 4096.0;
/// At this confidence a right program fails less than once in a million runs.
const CONFIDENCE: &str = "0.9999999";
/// Normal quantile of [`CONFIDENCE`].
const QUANTILE: f64 = 5.33;
/// Largest difference between the clocks of samplerd and of the test, plus the time since
/// samplerd's last reading.
const APART_NS: u64 = 300_000_000;

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64)
}

/// Stops samplerd for `stop` while a steady program runs, then lets samplerd work for 5 s.
fn stalled(stop: Duration, check: impl Fn(&Daemon, &Truth, [u64; 2]) -> Result<()>) -> Result<()> {
    let mut workload = Workload::start("stalled.c", &["4096", "20", "2000"])?;
    // Whole stacks fill the ring soon.
    let arguments = ["--interval", "8192", "--no-stack-cache", "--max-samples-per-second", "25000"];
    let mut daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    daemon.profile_where("a full queue", "live", &[], |of| of.totals.inuse_space.value > 9e6)?;
    let begin = now()?;
    daemon.child().signal(19)?;
    wait::pass(stop);
    daemon.child().signal(18)?;
    let end = now()?;
    // Samples after the pause must be as before.
    wait::pass(Duration::from_secs(5));
    wait::until("the end of the raise", || {
        let status = daemon.status()?;
        Ok((status["intervals"][0]["pressure"]["ring_fills"] != true).then_some(()))
    })?;
    workload.child().send("enough")?;
    let truth = workload.truth()?;
    check(&daemon, &truth, [begin, end])?;
    workload.exit()?;
    daemon.stop()
}

fn profile(daemon: &Daemon) -> Result<Profile> {
    daemon.profile("live", &["--confidence", CONFIDENCE])
}

/// Checks that the interval covers the truth, and is at most three times as wide as without a
/// pause. Variances of the raised times are at most eight times as large.
fn held_is_useful(daemon: &Daemon, truth: &Truth) -> Result<()> {
    let total = truth.total();
    let of = profile(daemon)?.totals.inuse_space;
    let held = total.live.bytes as f64;
    let inclusion = 1.0 - (1.0 - 1.0 / INTERVAL).powf(SIZE);
    let deviation = SIZE * (total.live.objects as f64 * (1.0 - inclusion) / inclusion).sqrt();
    println!("{held} in [{:.0}, {:.0}], {deviation:.0} undisturbed", of.low, of.high);
    ensure!(of.low <= held && held <= of.high, "{held} is not in [{}, {}]", of.low, of.high);
    let width = of.high - of.low;
    ensure!(width <= 3.0 * 2.0 * QUANTILE * deviation, "{width} is too wide: ± {deviation}");
    Ok(())
}

/// Checks that the growing function is named, and that its interval covers the truth, alone or
/// together with lost stacks.
fn the_leak_is_found(daemon: &Daemon) -> Result<()> {
    let finished = daemon.sampler(&["leaks", "--json", "--over", "1h"])?.success("leaks")?;
    let json: Value = serde_json::from_slice(&finished.stdout)?;
    let stacks = json["stacks"].as_array().context("no stacks")?;
    let grows = stacks.iter().any(|stack| {
        let kept = stack["frames"].to_string().contains("\"kept\"");
        kept && stack["growing"] == true && stack["growth"]["low"].as_f64() > Some(1e6)
    });
    ensure!(grows, "{json}");
    ensure!(json["notes"].to_string().contains("interval raised"), "{json}");
    Ok(())
}

/// Checks the note with extent, time and reason.
fn the_head_says_so(daemon: &Daemon, [begin, end]: [u64; 2]) -> Result<()> {
    let notes = profile(daemon)?.json["notes"].clone();
    let notes = notes.as_array().context("no notes")?;
    let note = notes.iter().filter_map(Value::as_str).find(|note| note.contains("interval raised"));
    let note = note.with_context(|| format!("{notes:?}"))?;
    println!("{note}");
    ensure!(note.contains("samplerd did not read its ring in time"), "{note}");
    let factor = note.split(' ').find_map(|word| word.strip_suffix("-fold"));
    let times: Vec<&str> = note.split(' ').filter(|word| word.contains('T')).collect();
    let factor: u64 = factor.unwrap_or_default().parse().with_context(|| note.to_owned())?;
    ensure!((2..=MAX_FACTOR).contains(&factor), "{note}");
    let [from, until] = times[..] else { anyhow::bail!("no two times: {note}") };
    let (early, late) = (utc(begin - APART_NS), utc(end));
    ensure!((early.as_str()..=late.as_str()).contains(&from), "{early} to {late}: {note}");
    ensure!(until.trim_end_matches(':') >= utc(end - APART_NS).as_str(), "{late}: {note}");
    Ok(())
}

#[test]
fn a_stop_of_1500_ms_leaves_held_bytes_useful() -> Result<()> {
    stalled(Duration::from_millis(1500), |daemon, truth, stop| {
        the_head_says_so(daemon, stop)?;
        held_is_useful(daemon, truth)?;
        the_leak_is_found(daemon)?;
        // Totals stay complete: lost samples kept their size.
        let exact = profile(daemon)?.exact_space;
        ensure!(exact == truth.total().alloc.bytes, "{exact}, {truth:?}");
        Ok(())
    })
}

#[test]
fn a_stop_of_a_third_of_a_second_leaves_held_bytes_useful() -> Result<()> {
    stalled(Duration::from_millis(300), |daemon, truth, _| held_is_useful(daemon, truth))
}
