//! Storms: more samples than the ring can take, or than a limit allows in a second. Nothing is
//! lost. Only the interval of the noisy process rises, and estimates stay right. Afterwards the
//! interval is again the requested one.

use anyhow::{Context, Result, ensure};
use sampler_tests::daemon::outcome;
use sampler_tests::truth::Function;
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use serde_json::Value;

/// Confidence of every interval here. Fewer than 100 intervals are compared.
const CONFIDENCE: &str = "0.999999999";

/// Outcomes that a storm must not cause.
const LOSSES: [&str; 4] = ["ring_full", "ring_share", "free_ring_full", "free_ring_share"];

/// `pressure.c`, which allocates blocks of `size` bytes.
fn workload(storms: u64, calms: u64, size: u64) -> Result<Workload> {
    until_told("neither", storms, calms, size)
}

/// `pressure.c`, one phase of which goes on until [`enough`].
fn until_told(which: &str, storms: u64, calms: u64, size: u64) -> Result<Workload> {
    let [storms, calms, size] = [storms, calms, size].map(|number| number.to_string());
    Workload::start("pressure.c", &[&storms, &calms, &size, which])
}

/// Ends the phase that goes on, and returns what the phase allocated.
fn enough(workload: &mut Workload) -> Result<Truth> {
    workload.child().send("enough")?;
    workload.truth()
}

/// Checks that nothing was lost on the way to the daemon.
fn nothing_lost(daemon: &Daemon) -> Result<()> {
    let status = daemon.status()?;
    for loss in LOSSES {
        ensure!(outcome(&status, loss) == 0, "{loss}: {}", status["outcomes"]);
    }
    Ok(())
}

fn profile_of(daemon: &Daemon, kind: &str, workload: &Workload) -> Result<Profile> {
    let pid = workload.pid().to_string();
    daemon.profile(kind, &["--confidence", CONFIDENCE, "--pid", &pid])
}

/// Checks exact totals to the byte, and that intervals cover bytes and objects, of each process and
/// in both kinds of profile.
fn holds(daemon: &Daemon, workload: &Workload, truth: &Function) -> Result<()> {
    let profile = profile_of(daemon, "live", workload)?;
    let (exact, bytes) = (profile.exact_space, truth.alloc.bytes);
    ensure!(exact == bytes, "exact {exact} is not {bytes}");
    ensure!(profile.exact_objects == truth.alloc.objects, "exact {}", profile.exact_objects);
    let totals = profile.totals;
    for (what, of, truth) in [
        ("allocated bytes", totals.alloc_space, truth.alloc.bytes),
        ("allocated objects", totals.alloc_objects, truth.alloc.objects),
        ("live bytes", totals.inuse_space, truth.live.bytes),
        ("live objects", totals.inuse_objects, truth.live.objects),
    ] {
        println!("{what}: {truth} in [{:.0}, {:.0}], {:.0}", of.low, of.high, of.value);
        let inside = of.low <= truth as f64 && truth as f64 <= of.high;
        ensure!(inside, "{what}: [{}, {}] does not cover {truth}", of.low, of.high);
    }
    Ok(())
}

/// Checks that every allocation was sampled, with its stack.
fn is_complete(daemon: &Daemon, workload: &Workload, function: &str, objects: u64) -> Result<()> {
    let profile = profile_of(daemon, "alloc", workload)?;
    let row = profile.row(function).alloc_objects;
    ensure!(row.samples == objects, "{} of {objects}: {}", row.samples, profile.folded());
    ensure!((row.sum - objects as f64).abs() < 1e-6, "they stand for {} objects", row.sum);
    Ok(())
}

/// Number of samples of `calm`.
fn calm_samples(profile: &Profile) -> f64 {
    profile.row("calm").alloc_space.samples as f64
}

/// Time of a profile, seconds.
fn seconds(profile: &Profile) -> Result<f64> {
    let time = profile.json["time_unix_ns"].as_u64().context("a profile without its time")?;
    Ok(time as f64 / 1e9)
}

/// The sampling of a process in `status`.
fn sampling(daemon: &Daemon, workload: &Workload) -> Result<Value> {
    let status = daemon.status()?;
    let all = status["intervals"].as_array().context("status has no intervals")?;
    let one = all.iter().find(|of| of["pid"] == workload.pid());
    Ok(one.with_context(|| format!("{} is not in {status}", workload.pid()))?.clone())
}

/// Waits until the interval is again the requested one.
fn recovers(daemon: &Daemon, workload: &Workload, interval: u64) -> Result<Value> {
    wait::until("the interval that was asked for", || {
        let of = sampling(daemon, workload)?;
        let pressure = &of["pressure"];
        let back = of["interval_bytes"] == interval
            && pressure["factor"].as_f64() == Some(1.0)
            && pressure["ring_fills"] != true;
        Ok(back.then(|| pressure.clone()))
    })
}

/// The daemon reads nothing until the storm is over. Ring pressure alone keeps the ring from
/// filling.
#[test]
fn a_storm_does_not_fill_the_ring_of_a_stopped_daemon() -> Result<()> {
    let (mut noisy, mut quiet) = (workload(400_000, 100, 64)?, workload(0, 40, 500)?);
    let pids = [noisy.pid(), quiet.pid()];
    let arguments = ["--interval", "1", "--max-samples-per-second", "25000"];
    let mut daemon = Daemon::start(&pids, &arguments)?;
    quiet.go()?;
    quiet.truth()?;
    daemon.child().signal(19)?;
    quiet.go()?;
    noisy.go()?;
    let storm = noisy.truth()?;
    let calm = quiet.truth()?;
    daemon.child().signal(18)?;
    holds(&daemon, &noisy, storm.function("storm")?)?;
    nothing_lost(&daemon)?;
    is_complete(&daemon, &quiet, "calm", calm.function("calm")?.alloc.objects)?;

    let pressure = recovers(&daemon, &noisy, 1)?;
    println!("{pressure}");
    ensure!(pressure["ring_raises"].as_u64() > Some(0), "no ring pressure: {pressure}");
    ensure!(pressure["ring_factor"].as_f64() >= Some(16.0), "hardly any ring pressure: {pressure}");
    ensure!(sampling(&daemon, &quiet)?["pressure"].is_null(), "the quiet one is pressed");
    noisy.go()?;
    noisy.truth()?;
    is_complete(&daemon, &noisy, "calm", 100)?;
    nothing_lost(&daemon)?;
    noisy.exit()?;
    quiet.exit()?;
    daemon.stop()
}

/// Rings that are too small for many levels of ring pressure. Samples without room are lost with
/// their size, and no interval is too narrow.
#[test]
fn estimates_with_small_rings_cover_the_truth() -> Result<()> {
    for ring in ["64KiB", "1MiB", "4MiB"] {
        let mut workload = Workload::start("truth.c", &["32", "1", "512"])?;
        let arguments = ["--interval", "512", "--ring", ring, "--max-samples-per-second", "25000"];
        let daemon = Daemon::start(&[workload.pid()], &arguments)?;
        workload.go()?;
        let total = workload.truth()?.total();
        let profile = profile_of(&daemon, "live", &workload)?;
        ensure!(profile.exact_space == total.alloc.bytes, "exact {}", profile.exact_space);
        let (allocated, held) = (profile.totals.alloc_space, profile.totals.inuse_space);
        for (of, truth) in [(allocated, total.alloc.bytes), (held, total.live.bytes)] {
            println!("{ring}: {truth} in [{:.0}, {:.0}], {:.0}", of.low, of.high, of.value);
            let inside = of.low <= truth as f64 && truth as f64 <= of.high;
            ensure!(inside, "{ring}: [{}, {}] does not cover {truth}", of.low, of.high);
        }
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// Far more samples than are allowed in a second, and a quiet process next to the noisy one.
#[test]
fn a_storm_raises_the_interval_of_the_noisy_process_alone() -> Result<()> {
    let mut noisy = until_told("storm", 2_000_000, 100, 64)?;
    let mut quiet = workload(0, 1000, 4096)?;
    let pids = [noisy.pid(), quiet.pid()];
    let arguments = ["--interval", "64", "--max-samples-per-second", "3000"];
    let daemon = Daemon::start(&pids, &arguments)?;
    quiet.go()?;
    quiet.truth()?;
    quiet.go()?;
    noisy.go()?;
    let during = wait::until("a raised interval", || {
        let of = sampling(&daemon, &noisy)?;
        Ok((of["pressure"]["factor"].as_f64() > Some(4.0)).then_some(of))
    })?;
    println!("{during}");
    let storm = enough(&mut noisy)?;
    let calm = quiet.truth()?;
    holds(&daemon, &noisy, storm.function("storm")?)?;
    nothing_lost(&daemon)?;
    ensure!(sampling(&daemon, &quiet)?["pressure"].is_null(), "the quiet one is pressed");
    is_complete(&daemon, &quiet, "calm", calm.function("calm")?.alloc.objects)?;

    let pressure = recovers(&daemon, &noisy, 64)?;
    println!("{pressure}");
    ensure!(pressure["raises"].as_u64() > Some(0) && pressure["limit"] == "daemon", "{pressure}");
    ensure!(pressure["since_unix_ns"].as_u64() > Some(0), "{pressure}");
    noisy.go()?;
    noisy.truth()?;
    noisy.exit()?;
    quiet.exit()?;
    daemon.stop()
}

/// Each process has a limit of its own, below the daemon's.
#[test]
fn a_limit_for_each_process_is_kept() -> Result<()> {
    const LIMIT: f64 = 300.0;
    let mut loud = until_told("calm", 0, 4000, 4096)?;
    let arguments = ["--interval", "64", "--max-samples-per-process", "300"];
    let daemon = Daemon::start(&[loud.pid()], &arguments)?;
    loud.go()?;
    loud.truth()?;
    loud.go()?;
    wait::until("a raised interval", || {
        let of = sampling(&daemon, &loud)?;
        Ok((of["pressure"]["factor"].as_f64() > Some(1.0)).then_some(()))
    })?;
    // Times are read from the profiles: the limit uses the same clock. A profile that is made late
    // has read samples for longer, too.
    let before = profile_of(&daemon, "alloc", &loud)?;
    let truth = enough(&mut loud)?;
    let after = profile_of(&daemon, "alloc", &loud)?;
    let samples = calm_samples(&after) - calm_samples(&before);
    let seconds = seconds(&after)? - seconds(&before)?;
    println!("{samples} samples in {seconds:.1} s");
    // The bound adds the contents of the bucket, and the samples before each answer.
    ensure!(samples < LIMIT * seconds + 0.25 * LIMIT + 300.0, "{samples} in {seconds} s");
    holds(&daemon, &loud, truth.function("calm")?)?;
    let pressure = sampling(&daemon, &loud)?["pressure"].clone();
    ensure!(pressure["limit"] == "process", "{pressure}");
    nothing_lost(&daemon)?;
    loud.exit()?;
    daemon.stop()
}

#[test]
fn invalid_limits_are_refused_in_one_line() -> Result<()> {
    for limit in ["--max-samples-per-second", "--max-samples-per-process"] {
        for value in ["0", "-1", "many", "1e7", ""] {
            let daemon = sampler_tests::daemon::samplerd(&["--pid", "1", limit, value])?;
            ensure!(daemon.code() == 2, "{limit} {value}: exit code {}", daemon.code());
            let line = daemon.stderr.lines().find(|line| line.contains("must be 1 to 1000000"));
            ensure!(line.is_some(), "{limit} {value}: {}", daemon.stderr);
        }
    }
    Ok(())
}
