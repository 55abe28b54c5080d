//! The truth tests of the probes, with the library: the same workload, the same bounds, the same
//! wrong estimators that must fail.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::interval;
use sampler_tests::statistics::{self, Comparison};
use sampler_tests::truth::TrueSums;
use sampler_tests::{Daemon, Profile, Truth, preload};

/// Mean bytes between samples. Each run has 8,700 ± 90 samples in less than a second. A process may
/// send 10,000 a second.
const INTERVAL: u64 = 80 << 10;
/// Runs of 660,000 allocations.
const RUNS: u64 = 22;
/// Expected samples from which a function's interval must cover the truth.
const COMPARED: f64 = 30.0;

/// Confidence of an interval. Compared are 7 functions and the total, allocated and live, in each
/// run.
fn confidence() -> f64 {
    1.0 - 1e-7 / (RUNS * 8 * 2) as f64
}

#[test]
fn preloaded_estimates_have_the_stated_errors() -> Result<()> {
    let (mut alloc, mut live) = (Vec::new(), Vec::new());
    for seed in 1..=RUNS {
        let (profile, truth) = run(seed)?;
        compare(&profile, &truth, &mut alloc, &mut live).with_context(|| format!("seed {seed}"))?;
    }
    statistics::judge("allocated bytes", &alloc)?;
    // A process may send 10,000 samples a second. At that rate held bytes have too few samples for
    // the wrong estimators to fail.
    let live = statistics::fit(&live);
    statistics::chi_squared(&live)?.check("live bytes: estimates")?;
    statistics::reported_variance(&live)?.check("live bytes: variances")
}

fn run(seed: u64) -> Result<(Profile, Truth)> {
    let arguments = [seed.to_string(), "1".into(), INTERVAL.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut workload = preload::workload("truth.c", &arguments, INTERVAL)?;
    let daemon = Daemon::start(&[workload.pid()], &["--ring", "256MiB"])?;
    workload.go()?;
    let truth = workload.truth()?;
    let confidence = format!("{:.17}", confidence());
    let profile = daemon.profile("alloc", &["--confidence", &confidence])?;
    ensure!(profile.lost_samples == 0, "samples were lost: {}", profile.json["lost"]);
    ensure!(daemon.outcome("usdt_flood")? == 0, "more samples than a process may send in a second");
    workload.exit()?;
    daemon.stop()?;
    Ok((profile, truth))
}

fn compare(
    profile: &Profile,
    truth: &Truth,
    alloc: &mut Vec<Comparison>,
    live: &mut Vec<Comparison>,
) -> Result<()> {
    let total = truth.total();
    let totals = &profile.totals;
    covers("total alloc", totals.alloc_space.low, totals.alloc_space.high, &total.alloc)?;
    covers("total live", totals.inuse_space.low, totals.inuse_space.high, &total.live)?;
    for function in &truth.functions {
        let row = profile.row(&function.name);
        ensure!(row.alloc_space.samples > 0 || function.alloc.expected < 50.0, "{function:?}");
        for (kind, sums, moments, to) in [
            ("alloc", &function.alloc, &row.alloc_space, &mut *alloc),
            ("live", &function.live, &row.inuse_space, &mut *live),
        ] {
            let name = format!("{} {kind}", function.name);
            if sums.expected >= COMPARED {
                let of = interval(moments, INTERVAL as f64, confidence())?;
                covers(&name, of.low, of.high, sums)?;
            }
            to.push(Comparison {
                estimate: moments.sum,
                reported_variance: moments.variance,
                sum_then_unbias: statistics::sum_then_unbias(
                    moments.samples,
                    moments.own,
                    INTERVAL as f64,
                ),
                ..known(name, sums)
            });
        }
    }
    Ok(())
}

/// The workload's part of a comparison.
fn known(name: String, sums: &TrueSums) -> Comparison {
    Comparison {
        name,
        estimate: 0.0,
        reported_variance: 0.0,
        sum_then_unbias: 0.0,
        truth: sums.bytes as f64,
        expected: sums.expected,
        variance: sums.of_bytes.variance,
        cumulant: sums.of_bytes.cumulant,
        variance_of_variance: sums.of_bytes.variance_of_variance,
    }
}

fn covers(what: &str, low: f64, high: f64, truth: &TrueSums) -> Result<()> {
    let truth = truth.bytes as f64;
    ensure!(low <= truth && truth <= high, "{what}: [{low}, {high}] does not cover {truth}");
    Ok(())
}
