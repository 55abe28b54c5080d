//! A workload that counts its own allocations. `exact` equals the truth to the byte, intervals
//! cover the truth, and over many runs estimates and their variances are as precise as they claim.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::{Row, interval};
use sampler_tests::statistics::{self, Comparison};
use sampler_tests::truth::{Function, TrueSums};
use sampler_tests::{Build, Daemon, Profile, Truth, Workload};

/// Mean bytes between samples.
const INTERVAL: f64 = 32768.0;

/// Room for all samples of a run, however late the daemon reads them.
const RING: &str = "256MiB";

/// Expected samples from which a function's interval must cover the truth.
const COMPARED: f64 = 30.0;

/// A method of profiling, with its number of runs.
struct Method {
    name: &'static str,
    runs: u64,
    build: Build,
    arguments: &'static [&'static str],
}

/// 22 runs of 660,000 allocations: 14 million calls.
const METHODS: &[Method] = &[
    Method { name: "default", runs: 6, build: Build::Plain, arguments: &[] },
    Method {
        name: "session",
        runs: 4,
        build: Build::Plain,
        arguments: &["--probe-engine", "session"],
    },
    Method { name: "multi", runs: 4, build: Build::Plain, arguments: &["--probe-engine", "multi"] },
    Method { name: "perf", runs: 4, build: Build::Plain, arguments: &["--probe-engine", "perf"] },
    Method { name: "fp", runs: 4, build: Build::FramePointers, arguments: &["--unwind", "fp"] },
];

/// Confidence of an interval. Compared are 7 functions and the total, allocated and live, in each
/// run.
fn confidence() -> f64 {
    let runs: u64 = METHODS.iter().map(|method| method.runs).sum();
    1.0 - 1e-7 / (runs * 8 * 2) as f64
}

struct Data {
    alloc: Vec<Comparison>,
    live: Vec<Comparison>,
}

#[test]
fn estimates_have_the_stated_errors() -> Result<()> {
    let mut data = Data { alloc: Vec::new(), live: Vec::new() };
    let mut seed = 0;
    for method in METHODS {
        for _ in 0..method.runs {
            seed += 1;
            run(method, seed, &mut data).with_context(|| format!("{} seed {seed}", method.name))?;
        }
    }
    statistics::judge("allocated bytes", &data.alloc)?;
    statistics::judge("live bytes", &data.live)
}

/// Half the cost: frees are not probed. Allocated bytes are as precise, and the profile claims no
/// held bytes.
#[test]
fn the_no_live_option_counts_allocations_only() -> Result<()> {
    let (profile, truth) = profile(Build::Plain, 1001, &["--no-live"])?;
    exact(&profile, &truth)?;
    ensure!(profile.totals.inuse_space.moments.samples == 0, "--no-live must hold nothing");
    let total = truth.total();
    let of = interval(&profile.totals.alloc_space.moments, INTERVAL, confidence())?;
    covers("total", of.low, of.high, total.alloc.bytes)
}

/// Two processes under one daemon: each has its own numbers.
#[test]
fn totals_of_two_processes_are_kept_apart() -> Result<()> {
    let arguments = |seed: &'static str| ["truth.c", seed, "1", "32768"];
    let mut both = [arguments("2001"), arguments("2002")]
        .map(|[source, rest @ ..]| Workload::start(source, &rest))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let pids: Vec<u32> = both.iter().map(Workload::pid).collect();
    let daemon = Daemon::start(&pids, &["--interval", "32KiB"])?;
    both.iter_mut().try_for_each(Workload::go)?;
    let truths = both.iter_mut().map(Workload::truth).collect::<Result<Vec<_>>>()?;
    for (pid, truth) in pids.iter().zip(&truths) {
        exact(&daemon.profile("alloc", &["--pid", &pid.to_string()])?, truth)?;
    }
    let all = daemon.profile("alloc", &[])?;
    let sum: u64 = truths.iter().map(|truth| truth.total().alloc.bytes).sum();
    ensure!(all.exact_space == sum, "both together: {} is not {sum}", all.exact_space);
    both.iter_mut().try_for_each(Workload::exit)?;
    daemon.stop()
}

fn profile(build: Build, seed: u64, arguments: &[&str]) -> Result<(Profile, Truth)> {
    let mut workload =
        Workload::start_as(build, "truth.c", &[&seed.to_string(), "1", &INTERVAL.to_string()])?;
    let arguments = [&["--interval", "32KiB", "--ring", RING], arguments].concat();
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let confidence = format!("{:.17}", confidence());
    let profile = daemon.profile("alloc", &["--confidence", &confidence])?;
    workload.exit()?;
    daemon.stop()?;
    Ok((profile, truth))
}

fn run(method: &Method, seed: u64, data: &mut Data) -> Result<()> {
    let (profile, truth) = profile(method.build, seed, method.arguments)?;
    exact(&profile, &truth)?;
    ensure!(profile.lost_samples == 0, "samples were lost: {}", profile.json["lost"]);

    printed_is_what_rows_say(&profile)?;
    let total = truth.total();
    let totals = &profile.totals;
    covers("total alloc", totals.alloc_space.low, totals.alloc_space.high, total.alloc.bytes)?;
    covers("total live", totals.inuse_space.low, totals.inuse_space.high, total.live.bytes)?;
    for function in &truth.functions {
        // posix_memalign calls malloc for small alignments, from code without frame pointers. A
        // walk by frame pointers then misses the caller. The total above includes those bytes.
        if method.name == "fp" && function.name == "alloc_aligned" {
            continue;
        }
        let row = profile.row(&function.name);
        compare(function, &row, data)
            .with_context(|| format!("{} ({} stacks)", function.name, row.stacks))?;
    }
    Ok(())
}

/// Checks that the printed intervals are those that a reader makes of the rows' moments.
fn printed_is_what_rows_say(profile: &Profile) -> Result<()> {
    let read = sampler_common::encode::json::read(&profile.json.to_string())?;
    for stack in &read.stacks {
        let made = read.quantities_of(&stack.row);
        let printed = &stack.quantities;
        for (ours, theirs) in [
            (made.alloc_space, printed.alloc_space),
            (made.alloc_objects, printed.alloc_objects),
            (made.inuse_space, printed.inuse_space),
            (made.inuse_objects, printed.inuse_objects),
        ] {
            let (ours, theirs) = (ours.estimate, theirs.estimate);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
            let same = near(ours.low, theirs.low)
                && near(ours.value, theirs.value)
                && near(ours.high, theirs.high);
            ensure!(same, "printed {theirs:?}, its row says {ours:?}");
        }
    }
    Ok(())
}

fn compare(function: &Function, row: &Row, data: &mut Data) -> Result<()> {
    for (kind, sums, moments, to) in [
        ("alloc", &function.alloc, &row.alloc_space, &mut data.alloc),
        ("live", &function.live, &row.inuse_space, &mut data.live),
    ] {
        let of = interval(moments, INTERVAL, confidence())?;
        if sums.expected >= COMPARED {
            covers(kind, of.low, of.high, sums.bytes)?;
        }
        to.push(Comparison {
            name: format!("{} {kind}", function.name),
            estimate: moments.sum,
            reported_variance: moments.variance,
            sum_then_unbias: statistics::sum_then_unbias(moments.samples, moments.own, INTERVAL),
            truth: sums.bytes as f64,
            expected: sums.expected,
            variance: sums.of_bytes.variance,
            cumulant: sums.of_bytes.cumulant,
            variance_of_variance: sums.of_bytes.variance_of_variance,
        });
    }
    Ok(())
}

fn exact(profile: &Profile, truth: &Truth) -> Result<()> {
    let TrueSums { objects, bytes, .. } = truth.total().alloc;
    ensure!(profile.exact_space == bytes, "exact bytes {} are not {bytes}", profile.exact_space);
    ensure!(
        profile.exact_objects == objects,
        "exact objects {} are not {objects}",
        profile.exact_objects
    );
    Ok(())
}

fn covers(what: &str, low: f64, high: f64, truth: u64) -> Result<()> {
    ensure!(
        low <= truth as f64 && truth as f64 <= high,
        "{what}: [{low}, {high}] does not cover {truth}"
    );
    Ok(())
}
