//! Every strategy through the real kernel, judged on a workload that counts its own allocations.

use anyhow::{Context, Result, ensure};
use sampler_tests::statistics::{self, Comparison};
use sampler_tests::truth::{Function, TrueSums};
use sampler_tests::{Build, Daemon, Profile, Truth, Workload, wait};
use std::time::Duration;

/// Mean bytes between samples, and mean calls between samples for bernoulli.
const INTERVAL: u64 = 32 << 10;
const ONE_IN: u64 = 64;

/// Room for all samples of a run, however late the daemon reads them.
const RING: &str = "256MiB";

/// Runs of 660,000 allocations each.
const RUNS: u64 = 4;

/// Expected samples from which an interval must cover the truth.
const COMPARED: f64 = 30.0;

/// A confidence at which not one of a run's intervals misses by chance. A run has 32 numbers, and
/// there are at most 40 runs.
fn confidence() -> String {
    format!("{:.17}", 1.0 - 1e-7 / (40.0 * 32.0))
}

/// A profile of the whole workload, and its truth.
fn profile(seed: u64, law: &[&str], daemon: &[&str]) -> Result<(Profile, Truth)> {
    let confidence = confidence();
    let (mut profiles, truth) = profiles(seed, law, daemon, &[&["--confidence", &confidence]])?;
    Ok((profiles.remove(0), truth))
}

/// Several profiles of one run, each with its own arguments from `options`.
fn profiles(
    seed: u64,
    law: &[&str],
    daemon: &[&str],
    options: &[&[&str]],
) -> Result<(Vec<Profile>, Truth)> {
    let interval = if law == ["bernoulli"] { ONE_IN } else { INTERVAL };
    let (seed, interval) = (seed.to_string(), interval.to_string());
    let arguments = [&[seed.as_str(), "1", &interval], law].concat();
    let mut workload = Workload::start_as(Build::Plain, "truth.c", &arguments)?;
    let bytes = INTERVAL.to_string();
    let usual = ["--interval", bytes.as_str(), "--ring", RING];
    let daemon = Daemon::start(&[workload.pid()], &[&usual, daemon].concat())?;
    workload.go()?;
    let truth = workload.truth()?;
    let profiles = options.iter().map(|options| daemon.profile("alloc", options));
    let profiles = profiles.collect::<Result<Vec<_>>>()?;
    workload.exit()?;
    daemon.stop()?;
    let TrueSums { objects, bytes, .. } = truth.total().alloc;
    for of in &profiles {
        ensure!(of.exact_space == bytes, "exact bytes {} are not {bytes}", of.exact_space);
        ensure!(of.exact_objects == objects, "exact objects are not {objects}");
        ensure!(of.lost_samples == 0, "samples were lost: {}", of.json["lost"]);
    }
    Ok((profiles, truth))
}

/// A weighted estimate of a function with its truth. `of(sums)` is the true variance.
fn compare(
    function: &Function,
    profile: &Profile,
    variance_is_known: bool,
    data: &mut [Vec<Comparison>; 2],
) -> Result<()> {
    let row = profile.row(&function.name);
    let quantities =
        [("alloc", &function.alloc, &row.alloc_space), ("live", &function.live, &row.inuse_space)];
    for ((kind, sums, moments), to) in quantities.into_iter().zip(data) {
        let spread = sums.of_bytes;
        to.push(Comparison {
            name: format!("{} {kind}", function.name),
            estimate: moments.sum,
            reported_variance: moments.variance,
            sum_then_unbias: statistics::sum_then_unbias(
                moments.samples,
                moments.own,
                INTERVAL as f64,
            ),
            truth: sums.bytes as f64,
            expected: if variance_is_known { sums.expected } else { moments.samples as f64 },
            variance: if variance_is_known { spread.variance } else { moments.variance },
            cumulant: spread.cumulant,
            variance_of_variance: spread.variance_of_variance,
        });
    }
    covered(function, profile)
}

/// Checks a function with exactly one stack: the printed interval must cover the truth.
fn covered(function: &Function, profile: &Profile) -> Result<()> {
    let stacks: Vec<_> = profile.stacks_of(&function.name).collect();
    let [stack] = stacks.as_slice() else { return Ok(()) };
    let printed = stack.quantities;
    for (kind, sums, of) in [
        ("alloc", &function.alloc, printed.alloc_space),
        ("live", &function.live, printed.inuse_space),
    ] {
        let bytes = sums.bytes as f64;
        ensure!(
            of.moments.samples < COMPARED as u64 || (of.low <= bytes && bytes <= of.high),
            "{kind}: [{}, {}] does not cover {bytes}",
            of.low,
            of.high
        );
    }
    Ok(())
}

/// Runs of one strategy, and their comparisons.
fn runs(seeds: u64, law: &[&str], daemon: &[&str], known: bool) -> Result<[Vec<Comparison>; 2]> {
    let mut data = [Vec::new(), Vec::new()];
    for seed in seeds..seeds + RUNS {
        let (profile, truth) = profile(seed, law, daemon)?;
        for function in &truth.functions {
            compare(function, &profile, known, &mut data)
                .with_context(|| format!("{daemon:?}, seed {seed}, {}", function.name))?;
        }
    }
    Ok(data)
}

#[test]
fn poisson_estimates_have_the_stated_errors() -> Result<()> {
    let [alloc, live] = runs(100, &["poisson"], &["--strategy", "poisson"], true)?;
    statistics::judge("poisson, allocated bytes", &alloc)?;
    // These comparisons are too few to fail the negative controls. The allocated bytes have shown
    // that the tests can fail.
    let live = statistics::fit(&live);
    statistics::chi_squared(&live)?.check("poisson, live bytes")?;
    statistics::reported_variance(&live)?.check("poisson, live bytes: reported variances")
}

/// The test judges objects. Large blocks are rare, and make the estimate of bytes useless, as is
/// expected of bernoulli.
#[test]
fn bernoulli_estimates_have_the_stated_errors() -> Result<()> {
    let one_in = ONE_IN.to_string();
    let daemon = ["--strategy", "bernoulli", "--one-in", &one_in];
    let mut data = Vec::new();
    for seed in 200..200 + RUNS {
        let (profile, truth) = profile(seed, &["bernoulli"], &daemon)?;
        for function in &truth.functions {
            covered(function, &profile)?;
            let moments = profile.row(&function.name).alloc_objects;
            let TrueSums { objects, expected, of_objects, .. } = function.alloc;
            data.push(Comparison {
                name: function.name.clone(),
                estimate: moments.sum,
                reported_variance: moments.variance,
                // All objects have one probability, so the order of sum and unbiasing does not
                // matter.
                sum_then_unbias: moments.sum,
                truth: objects as f64,
                expected,
                variance: of_objects.variance,
                cumulant: of_objects.cumulant,
                variance_of_variance: of_objects.variance_of_variance,
            });
        }
    }
    let data = statistics::fit(&data);
    let pooled = statistics::chi_squared(&data)?;
    println!("bernoulli, allocated objects: {} comparisons, {pooled:?}", data.len());
    pooled.check("bernoulli, allocated objects")?;
    statistics::reported_variance(&data)?.check("bernoulli: reported variances")?;
    for (control, factor) in [("times 1.1", 1.1), ("times 0.9", 0.9)] {
        let mut wrong = data.clone();
        wrong.iter_mut().for_each(|of| of.estimate *= factor);
        let pooled = statistics::chi_squared(&wrong)?;
        ensure!(!pooled.passes(), "control `weights {control}` passes: {pooled:?}");
    }
    Ok(())
}

/// Bernoulli learns the mean size of the first calls, to take about as many samples as geometric
/// would.
#[test]
fn bernoulli_learns_its_rate() -> Result<()> {
    let (profile, truth) = profile(300, &[], &["--strategy", "bernoulli"])?;
    let total = truth.total().alloc;
    let wanted = total.bytes as f64 / INTERVAL as f64;
    let samples = profile.samples as f64;
    // The first calls have another mean than the whole, 1330 B: sizes have a heavy tail, and the
    // growing buffers come later. A daemon that reads after the first thousand calls finds 330 B
    // now and then. An eighth of the wanted samples would need a thousand calls of which none has 1
    // KiB (e^-15) and all others are small.
    ensure!(
        samples > wanted / 8.0 && samples < wanted * 4.0,
        "{samples} samples instead of about {wanted}"
    );
    for function in &truth.functions {
        covered(function, &profile).with_context(|| function.name.clone())?;
    }
    Ok(())
}

/// The rates of adaptive change all the time. The variance is the one that its samples report.
#[test]
fn adaptive_is_unbiased() -> Result<()> {
    let [alloc, live] = runs(400, &[], &["--strategy", "adaptive"], false)?;
    for (what, data) in [("allocated", alloc), ("live", live)] {
        let data = statistics::fit(&data);
        let pooled = statistics::chi_squared(&data)?;
        println!("adaptive, {what} bytes: {} comparisons, {pooled:?}", data.len());
        pooled.check(&format!("adaptive, {what} bytes"))?;
        let mut heavier = data.clone();
        heavier.iter_mut().for_each(|of| of.estimate *= 1.1);
        let control = statistics::chi_squared(&heavier)?;
        ensure!(!control.passes(), "control `weights times 1.1` passes: {control:?}");
    }
    Ok(())
}

/// Judges the two estimators that are not sums of weights, by their printed intervals at one
/// standard deviation.
fn judge_printed(
    what: &str,
    (estimator, counted): (&str, Counted),
    law: &[&str],
    daemon: &[&str],
    seeds: u64,
) -> Result<()> {
    let confidence = confidence();
    let one_deviation = ["--estimator", estimator, "--confidence", "0.6826894921370859"];
    let certain = ["--estimator", estimator, "--confidence", confidence.as_str()];
    let mut data = Vec::new();
    for seed in seeds..seeds + RUNS {
        let (profiles, truth) = profiles(seed, law, daemon, &[&one_deviation, &certain])?;
        let [near, sure] = profiles.as_slice() else { anyhow::bail!("two were asked for") };
        if estimator == "calibrated" {
            totals_are_exact(near)?;
        }
        for function in &truth.functions {
            covered(function, sure).with_context(|| format!("{what}: {}", function.name))?;
            data.push(printed(function, near, counted));
        }
    }
    let data = statistics::fit(&data);
    ensure!(data.len() >= 20, "{what}: only {} comparisons are fit to be pooled", data.len());
    let pooled = statistics::chi_squared(&data)?;
    println!("{what}: {} comparisons, {pooled:?}", data.len());
    pooled.check(what)?;
    for (control, factor) in [("times 1.1", 1.1), ("times 0.9", 0.9)] {
        let mut wrong = data.clone();
        wrong.iter_mut().for_each(|of| of.estimate *= factor);
        let pooled = statistics::chi_squared(&wrong)?;
        ensure!(!pooled.passes(), "{what}: control `{control}` passes: {pooled:?}");
    }
    Ok(())
}

/// The judged quantity.
#[derive(Clone, Copy)]
enum Counted {
    Bytes,
    Objects,
}

/// The printed numbers of a function's stacks. Half the widths of their intervals are the standard
/// deviations. Numbers of different stacks are independent. Numbers that are calibrated to one
/// total are nearly independent.
fn printed(function: &Function, profile: &Profile, counted: Counted) -> Comparison {
    let (mut estimate, mut expected, mut variance) = (0.0, 0.0, 0.0);
    for stack in profile.stacks_of(&function.name) {
        let of = match counted {
            Counted::Bytes => stack.quantities.alloc_space,
            Counted::Objects => stack.quantities.alloc_objects,
        };
        estimate += of.value;
        expected += of.moments.samples as f64;
        variance += ((of.high - of.low) / 2.0).powi(2);
    }
    Comparison {
        name: function.name.clone(),
        estimate,
        reported_variance: variance,
        sum_then_unbias: estimate,
        truth: match counted {
            Counted::Bytes => function.alloc.bytes as f64,
            Counted::Objects => function.alloc.objects as f64,
        },
        expected,
        variance,
        // Upper bound: the cumulant of as many exponential variables.
        cumulant: 6.0 * variance * variance / expected.max(1.0),
        variance_of_variance: 0.0,
    }
}

fn totals_are_exact(profile: &Profile) -> Result<()> {
    let (bytes, objects) = (profile.totals.alloc_space, profile.totals.alloc_objects);
    for (of, exact) in [(bytes, profile.exact_space), (objects, profile.exact_objects)] {
        let exact = exact as f64;
        let is = |end: f64| (end - exact).abs() <= 1e-9 * exact;
        ensure!(is(of.low) && is(of.value) && is(of.high), "{of:?} is not exactly {exact}");
    }
    let stacks: f64 = profile.stacks.iter().map(|of| of.quantities.alloc_space.value).sum();
    let exact = profile.exact_space as f64;
    ensure!((stacks - exact).abs() <= 1e-9 * exact, "the stacks make {stacks}, not {exact}");
    Ok(())
}

#[test]
fn failed_trials_have_the_stated_errors() -> Result<()> {
    judge_printed("failed trials", ("failed-trials", Counted::Bytes), &[], &[], 600)
}

#[test]
fn calibrated_geometric_estimates_have_the_stated_errors() -> Result<()> {
    judge_printed("calibrated, geometric", ("calibrated", Counted::Bytes), &[], &[], 700)
}

/// The test judges objects. Intervals of bytes have room for large blocks that may have been
/// missed, and are no standard deviations.
#[test]
fn calibrated_bernoulli_estimates_have_the_stated_errors() -> Result<()> {
    let daemon = ["--strategy", "bernoulli", "--one-in", "64"];
    judge_printed(
        "calibrated, bernoulli",
        ("calibrated", Counted::Objects),
        &["bernoulli"],
        &daemon,
        800,
    )
}

#[test]
fn calibrated_adaptive_estimates_have_the_stated_errors() -> Result<()> {
    judge_printed(
        "calibrated, adaptive",
        ("calibrated", Counted::Bytes),
        &[],
        &["--strategy", "adaptive"],
        900,
    )
}

/// A stride misses the total by less than an interval on each CPU. It has no confidence interval.
#[test]
fn a_stride_counts_points() -> Result<()> {
    let (profile, truth) = profile(500, &[], &["--strategy", "stride"])?;
    let total = truth.total().alloc.bytes as f64;
    let of = profile.totals.alloc_space;
    let cpus = std::thread::available_parallelism()?.get() as f64;
    ensure!(
        (of.value - total).abs() <= cpus * INTERVAL as f64,
        "{} is further from {total} than a stride on each CPU",
        of.value
    );
    ensure!(of.high.is_infinite(), "a stride must have no interval, but ends at {}", of.high);
    Ok(())
}

/// Time over which the rate of samples is measured.
const MEASURED: Duration = Duration::from_secs(3);

/// The interval follows the program to reach the wanted rate of samples. A program that allocates
/// some hundred kilobytes in a second starts with one sample in a few seconds at 1 MiB, and reaches
/// the rate.
#[test]
fn samples_per_second_are_kept() -> Result<()> {
    let mut workload = Workload::edge(&["ticks", "100"])?;
    let arguments = ["--interval", "1MiB", "--samples-per-second", "200"];
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    workload.truth()?;
    let counts = || -> Result<(Duration, u64)> {
        let status = daemon.status()?;
        let uptime = status["uptime_ns"].as_u64().context("no uptime")?;
        Ok((Duration::from_nanos(uptime), sampler_tests::daemon::outcome(&status, "sampled")))
    };
    let mut before = counts()?;
    let mut last = 0.0;
    // Half the wanted rate to one and a half times: the program's speed changes on a busy machine.
    wait::until("200 samples per second", || {
        let now = counts()?;
        if now.0 - before.0 < MEASURED {
            return Ok(None);
        }
        last = (now.1 - before.1) as f64 / (now.0 - before.0).as_secs_f64();
        before = now;
        Ok((100.0..300.0).contains(&last).then_some(()))
    })
    .with_context(|| format!("there were {last}"))?;
    let interval = daemon.status()?["intervals"][0]["interval_bytes"].as_u64();
    ensure!(interval.is_some_and(|bytes| bytes < 256 << 10), "the interval is {interval:?}");
    workload.child().signal(9)?;
    daemon.stop()
}
