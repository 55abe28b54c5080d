//! `cargo xtask bench tools`: checks that its figures measure what they claim.

use anyhow::{Context, Result, ensure};
use sampler_tests::again;
use sampler_tests::child::finish_within;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Largest number of repetitions. One repetition also measures the other work of the machine.
const TRIES: usize = 5;

/// Longest time of the benchmark's runs. A busy machine needs most of this time.
const LONG: Duration = Duration::from_secs(240);

/// Runs the benchmark once, for this many seconds per run. Its files are in `directory` then.
fn bench(directory: &Path, seconds: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-tools"));
    command.args(["--seconds", seconds, "--repetitions", "1", "--output"]).arg(directory);
    finish_within(command.args(arguments), LONG)?.success("bench tools").map(drop)
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))
}

/// The tool `name` of the first workload.
fn tool<'a>(document: &'a Value, name: &str) -> Result<&'a Value> {
    let tools = document["workloads"][0]["tools"].as_array().context("there are no tools")?;
    tools.iter().find(|tool| tool["name"] == name).with_context(|| format!("no tool {name}"))
}

#[test]
fn tools_slow_a_program_down_and_the_report_is_complete() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let tools = "again,empty,ours,ours-no-live,heaptrack-of-nobody";
    let refused = bench(directory.path(), "0.2", &["--tools", tools]).err();
    let refused = refused.context("not refused")?;
    ensure!(format!("{refused:#}").contains("heaptrack-of-nobody"), "{refused:#}");
    again::until("slowdowns", TRIES, || slows_down(directory.path()))?;
    for plot in ["slowdown.svg", "intervals.svg"] {
        ensure!(directory.path().join(plot).is_file(), "no {plot}");
    }
    Ok(())
}

/// Measures slowdowns. Returns an error text for implausible ones.
fn slows_down(directory: &Path) -> Result<Result<(), String>> {
    let tools = "empty,ours,ours-no-live";
    bench(directory, "0.2", &["--only", "slowdown", "--workloads", "pairs", "--tools", tools])?;
    let document = read(&directory.join("tools.json"))?;
    let slowdown = |name: &str| -> Result<f64> {
        let tool = tool(&document, name)?;
        let median = tool["slowdown"]["median"].as_f64();
        median.with_context(|| format!("{name} has no slowdown: {tool}"))
    };
    // The program only calls malloc and free: two traps in a pair that takes tens of ns.
    let (empty, ours, no_live) = (slowdown("empty")?, slowdown("ours")?, slowdown("ours-no-live")?);
    ensure!(slowdown("none")? == 1.0, "{document}");
    let samples = tool(&document, "ours")?["samples_per_second"].as_f64();
    let samples = samples.with_context(|| format!("no samples: {document}"))?;
    let holds = empty > 4.0 && ours > 4.0 && 1.2 < no_live && no_live < 0.8 * ours && samples > 0.0;
    let said =
        || format!("empty ×{empty}, ours ×{ours}, --no-live ×{no_live}, {samples} samples/s");
    Ok(if holds { Ok(()) } else { Err(said()) })
}

/// Number of places, and number of places whose interval held the exact bytes.
#[derive(Default)]
struct Covered {
    places: u32,
    held: u32,
}

#[test]
fn exact_figures_agree_with_samplerd() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // The counts of all tries are added: intervals that are too narrow do not become right by their
    // number.
    let mut covered = Covered::default();
    again::until("intervals of places", TRIES, || is_accurate(directory.path(), &mut covered))
}

/// Compares with exact figures. Returns an error text if estimates are off.
fn is_accurate(directory: &Path, covered: &mut Covered) -> Result<Result<(), String>> {
    bench(directory, "1", &["--only", "accuracy", "--workloads", "pairs,perl"])?;
    let document = read(&directory.join("accuracy.json"))?;
    let runs = document["runs"].as_array().context("there are no runs")?;
    ensure!(runs.len() == 6, "{document}");
    for run in runs {
        // samplerd and the library count the same calls, and samplerd counts all of them.
        let error = run["count_error"].as_f64().context("no count_error")?;
        ensure!(error.abs() < 1e-3, "samplerd and the library differ: {run}");
        let places = run["places"].as_array().context("no places")?;
        ensure!(!places.is_empty(), "no place: {run}");
        for place in places {
            let of = |name: &str| place[name].as_f64().unwrap_or(f64::NAN);
            covered.places += 1;
            covered.held += u32::from(of("low") <= of("exact") && of("exact") <= of("high"));
        }
    }
    let fine = &runs.iter().find(|run| run["interval_bytes"] == 65536).context("no 64 KiB")?;
    let total = fine["total_error"].as_f64().context("no total_error")?;
    ensure!(total.abs() < 0.5 && fine["places"][0]["estimate"] != 0.0, "{fine}");
    // 95 % of the intervals are expected to cover. Names that do not match would have no samples,
    // and intervals from 0.
    let Covered { places, held } = *covered;
    let holds = 10 * held >= 8 * places;
    Ok(if holds { Ok(()) } else { Err(format!("{held} of {places}: {document}")) })
}

#[test]
fn an_injected_program_is_compared_in_each_state() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let arguments = ["--only", "inject", "--workloads", "perl", "--inject-seconds", "1.6"];
    bench(directory.path(), "1", &arguments)?;
    let document = read(&directory.path().join("inject.json"))?;
    let run = &document["runs"][0];
    // A process that was idle may have no sample within its budget for a second or two.
    for (state, is_sampled) in [
        ("native", Some(false)),
        ("unheard", Some(false)),
        ("default", Some(true)),
        ("budget", None),
    ] {
        let figure = |name: &str| run[state][name].as_f64().context("no figure");
        let (slowdown, rate) = (figure("slowdown")?, figure("samples_per_second")?);
        let is_right = is_sampled.is_none_or(|is_sampled| (rate > 0.0) == is_sampled);
        ensure!(slowdown > 0.0 && is_right, "{state}: {document}");
    }
    Ok(())
}

#[test]
fn intervals_of_windows_and_of_held_bytes_are_measured() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let arguments = ["--only", "coverage,held", "--workloads", "python3", "--coverage-runs", "2"];
    let seconds = ["--windows-seconds", "1.5", "--held-seconds", "1.5"];
    bench(directory.path(), "1", &[&arguments[..], &seconds].concat())?;
    let coverage = read(&directory.path().join("coverage.json"))?;
    let runs = coverage["programs"][0]["runs"].as_array().context("no runs")?;
    ensure!(runs.len() == 2, "{coverage}");
    let is_measured =
        |run: &Value| run["windows"].as_f64() > Some(0.0) && run["value"].as_f64() > Some(0.0);
    ensure!(runs.iter().any(is_measured), "{coverage}");
    let held = read(&directory.path().join("held.json"))?;
    let of = |name: &str| held["runs"][0][name].as_f64().with_context(|| format!("{name}: {held}"));
    ensure!(of("low")? <= of("held_bytes")? && of("held_samples")? <= of("samples")?, "{held}");
    ensure!(of("samples")? > 0.0, "{held}");
    Ok(())
}
