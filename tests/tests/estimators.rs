//! Every estimator of a real daemon, on a workload that counts its own allocations.

use anyhow::{Context, Result, ensure};
use sampler_tests::client::Client;
use sampler_tests::profile::Quantities;
use sampler_tests::{Build, Daemon, Profile, Truth, Workload};
use serde_json::{Value, json};

const SERVICE: &str = "sampler.v1.Sampler";
/// Confidence of every interval: a miss would be a fault, not chance.
const CONFIDENCE: &str = "0.9999999";

/// The workload after all its work, and its truth.
fn done(interval: &str) -> Result<(Workload, Daemon, Truth)> {
    let mut workload = Workload::start_as(Build::Plain, "truth.c", &["700", "1", "32768"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", interval])?;
    workload.go()?;
    let truth = workload.truth()?;
    Ok((workload, daemon, truth))
}

fn profile_by(daemon: &Daemon, estimator: &str) -> Result<Profile> {
    daemon.profile("alloc", &["--estimator", estimator, "--confidence", CONFIDENCE])
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}

/// Checks that the sum of all stacks is the totals.
fn adds_up(profile: &Profile) -> Result<()> {
    let sum = |pick: fn(&Quantities) -> f64| -> f64 {
        profile.stacks.iter().map(|stack| pick(&stack.quantities)).sum()
    };
    for (name, pick) in [
        ("bytes", (|of| of.alloc_space.value) as fn(&Quantities) -> f64),
        ("objects", |of| of.alloc_objects.value),
    ] {
        let (stacks, total) = (sum(pick), pick(&profile.totals));
        ensure!(near(stacks, total), "{name}: the stacks make {stacks}, the total is {total}");
    }
    Ok(())
}

/// Checks the reference against the rows and the exact totals.
fn reference_is_sound(profile: &Profile) -> Result<()> {
    let reference = &profile.json["reference"];
    let strata = reference["strata"].as_array().context("no strata")?;
    let sum = |of: &dyn Fn(&Value) -> Option<f64>| -> f64 { strata.iter().filter_map(of).sum() };
    let exact = sum(&|of| of["exact"]["alloc_space"].as_f64());
    ensure!(near(exact, profile.exact_space as f64), "exact bytes by class make {exact}");
    let objects = sum(&|of| of["exact"]["alloc_objects"].as_f64());
    ensure!(near(objects, profile.exact_objects as f64), "exact objects by class make {objects}");
    let samples = sum(&|of| of["alloc_space"]["samples"].as_f64());
    ensure!(near(samples, profile.samples as f64), "samples by class make {samples}");
    ensure!(strata.len() > 10, "many sizes were asked for, but there are {} classes", strata.len());
    for stack in profile.json["stacks"].as_array().context("no stacks")? {
        let of_stack = stack["alloc_space"]["moments"]["sum"].as_f64().context("no sum")?;
        let classes = stack["strata"].as_array().context("no strata")?;
        let sums = classes.iter().filter_map(|of| of["alloc_space"]["sum"].as_f64());
        ensure!(near(sums.sum(), of_stack), "the strata of a stack are not all of it");
    }
    Ok(())
}

#[test]
fn every_estimator_covers_the_truth_of_geometric_samples() -> Result<()> {
    let (mut workload, daemon, truth) = done("32KiB")?;
    let total = truth.total().alloc;
    for estimator in ["weighted", "failed-trials", "calibrated"] {
        let profile = profile_by(&daemon, estimator)?;
        let json = &profile.json;
        ensure!(json["estimator"] == estimator && json["strategy"] == "geometric", "{estimator}");
        ensure!(profile.exact_space == total.bytes && profile.exact_objects == total.objects);
        adds_up(&profile).context(estimator)?;
        reference_is_sound(&profile).context(estimator)?;
        let of = profile.totals.alloc_space;
        let bytes = total.bytes as f64;
        ensure!(of.low <= bytes && bytes <= of.high, "{estimator}: {of:?} has not {bytes}");
        let method = &json["totals"]["alloc_space"]["method"];
        ensure!(method == estimator, "{estimator}: bytes were made by {method}");
        let text = daemon.sampler(&["profile", "--estimator", estimator])?.success("profile")?;
        let text = String::from_utf8(text.stdout)?;
        let named = text.contains(&format!("estimator {estimator}"));
        ensure!(named == (estimator != "weighted"), "{text}");
    }
    workload.exit()?;
    daemon.stop()
}

/// Rows sum to the exact totals, also after the exit, and also with hardly any sample.
#[test]
fn calibrated_rows_sum_to_the_exact_totals() -> Result<()> {
    for interval in ["32KiB", "16MiB", "4GiB"] {
        let (mut workload, daemon, truth) = done(interval)?;
        let total = truth.total().alloc;
        let check = |when: &str| -> Result<()> {
            let profile = profile_by(&daemon, "calibrated")?;
            adds_up(&profile)?;
            let Quantities { alloc_space, alloc_objects, .. } = profile.totals;
            for (of, exact) in [(alloc_space, total.bytes), (alloc_objects, total.objects)] {
                let exact = exact as f64;
                ensure!(near(of.value, exact), "{when}: {} is not {exact}", of.value);
                ensure!(near(of.low, exact) && near(of.high, exact), "{when}: it is exact: {of:?}");
            }
            Ok(())
        };
        check("running").context(interval)?;
        workload.exit()?;
        check("exited").context(interval)?;
        daemon.stop()?;
    }
    Ok(())
}

/// A missing pair is refused in one line with the pid, with exit code 1. This holds for every
/// strategy that the process was ever sampled with, and over the API too.
#[tokio::test]
async fn missing_estimators_of_a_strategy_are_refused() -> Result<()> {
    let mut workload = Workload::edge(&["ticks", "100"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    workload.truth()?;
    let mut client = Client::connect(&daemon.address).await?;
    client.learn(SERVICE).await?;
    let steps: [(&str, &[(&str, bool)]); 4] = [
        ("geometric", &[("weighted", true), ("failed-trials", true), ("calibrated", true)]),
        ("bernoulli", &[("weighted", true), ("failed-trials", false), ("calibrated", true)]),
        ("poisson", &[("weighted", true), ("failed-trials", false), ("calibrated", false)]),
        ("stride", &[("weighted", false), ("failed-trials", false), ("calibrated", false)]),
    ];
    for (strategy, pairs) in steps {
        daemon.sampler(&["set", "--strategy", strategy])?.success("sampler set")?;
        for (estimator, exists) in pairs {
            let finished = daemon.sampler(&["profile", "--json", "--estimator", estimator])?;
            let request = json!({ "kind": "KIND_ALLOC", "estimator": estimator });
            let answer = client.call(SERVICE, "GetProfile", request).await;
            ensure!(answer.is_ok() == *exists, "{strategy}, {estimator}: {answer:?}");
            if *exists {
                finished.success("sampler profile")?;
                continue;
            }
            let error = &finished.stderr;
            let words = format!("pid {}: estimator {estimator} does not exist for", workload.pid());
            ensure!(finished.status.code() == Some(1), "{:?}", finished.status);
            ensure!(error.contains(&words) && error.lines().count() == 1, "{error}");
        }
    }
    // Without an estimator there is an answer, which names its estimator.
    let profile = daemon.profile("alloc", &[])?.json;
    ensure!(profile["estimator"] == "points", "{}", profile["estimator"]);
    ensure!(profile["strategy"] == "geometric,bernoulli,poisson,stride", "{}", profile["strategy"]);
    let unknown = client.call(SERVICE, "GetProfile", json!({ "estimator": "best" })).await;
    ensure!(unknown.is_err(), "an unknown estimator must be refused");
    workload.child().signal(9)?;
    daemon.stop()
}
