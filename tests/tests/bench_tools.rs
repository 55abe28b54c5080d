//! `cargo xtask bench tools`: that its figures are of what it says.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the benchmark as short as it can be; its files are in `directory` then.
fn bench(directory: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-tools"));
    command.args(["--seconds", "0.2", "--repetitions", "1", "--output"]).arg(directory);
    finish(command.args(arguments))?.success("bench tools").map(drop)
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
fn tools_slow_a_program_down_and_the_rest_is_told() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let tools = "again,empty,ours,ours-no-live,heaptrack-of-nobody";
    let refused = bench(directory.path(), &["--tools", tools]).err().context("not refused")?;
    ensure!(format!("{refused:#}").contains("heaptrack-of-nobody"), "{refused:#}");
    bench(
        directory.path(),
        &["--only", "slowdown", "--workloads", "pairs", "--tools", "empty,ours,ours-no-live"],
    )?;
    let document = read(&directory.path().join("tools.json"))?;
    let slowdown = |name: &str| -> Result<f64> {
        let tool = tool(&document, name)?;
        let median = tool["slowdown"]["median"].as_f64();
        median.with_context(|| format!("{name} has no slowdown: {tool}"))
    };
    // Nothing but malloc and free: two traps in a pair that takes tens of ns.
    let (empty, ours, no_live) = (slowdown("empty")?, slowdown("ours")?, slowdown("ours-no-live")?);
    ensure!(slowdown("none")? == 1.0, "{document}");
    ensure!(empty > 4.0 && ours > 4.0, "empty ×{empty}, ours ×{ours}");
    ensure!(1.2 < no_live && no_live < 0.8 * ours, "--no-live ×{no_live}, ours ×{ours}");
    let samples = tool(&document, "ours")?["samples_per_second"].as_f64();
    ensure!(samples.is_some_and(|samples| samples > 0.0), "{document}");
    for plot in ["slowdown.svg", "intervals.svg"] {
        ensure!(directory.path().join(plot).is_file(), "no {plot}");
    }
    Ok(())
}

#[test]
fn exact_figures_are_those_that_samplerd_counts() -> Result<()> {
    let directory = tempfile::tempdir()?;
    bench(directory.path(), &["--only", "accuracy", "--workloads", "pairs,perl"])?;
    let document = read(&directory.path().join("accuracy.json"))?;
    let runs = document["runs"].as_array().context("there are no runs")?;
    ensure!(runs.len() == 6, "{document}");
    let (mut covered, mut all) = (0, 0);
    for run in runs {
        // Both count the same calls, samplerd all of them.
        let error = run["count_error"].as_f64().context("no count_error")?;
        ensure!(error.abs() < 1e-3, "samplerd and the library differ: {run}");
        let places = run["places"].as_array().context("no places")?;
        ensure!(!places.is_empty(), "no place: {run}");
        for place in places {
            let of = |name: &str| place[name].as_f64().unwrap_or(f64::NAN);
            all += 1;
            covered += u32::from(of("low") <= of("exact") && of("exact") <= of("high"));
        }
    }
    // 95 % of them; names that do not fit would have no samples, and intervals from 0.
    ensure!(10 * covered >= 8 * all, "{covered} of {all}: {document}");
    let fine = &runs.iter().find(|run| run["interval_bytes"] == 65536).context("no 64 KiB")?;
    let total = fine["total_error"].as_f64().context("no total_error")?;
    ensure!(total.abs() < 0.5 && fine["places"][0]["estimate"] != 0.0, "{fine}");
    Ok(())
}
