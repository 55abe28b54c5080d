//! `--windows` with `--all` and `--follow`: many processes, each in windows of its own. Most are
//! too short for eight windows.

use crate::compare::interval;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::windowed::NEAR_CERTAIN_CONFIDENCE;
use sampler_tests::{Daemon, build, wait};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Longest time of the processes. A busy machine needs most of this time.
const WINDOWS_DEADLINE: Duration = Duration::from_secs(240);

/// A program that starts many short ones.
struct Crew(Child);

impl Crew {
    fn start(arguments: &[&str]) -> Result<Crew> {
        let program = build::compile("crew.c", &[])?;
        let mut child = Child::start("crew", Command::new(program).args(arguments))?;
        ensure!(child.line()? == "ready", "no ready line");
        Ok(Crew(child))
    }

    /// Lets the program run, and returns what all of its processes have allocated.
    fn run(&mut self) -> Result<Value> {
        self.0.send("go")?;
        Ok(serde_json::from_str(&self.0.line_within(WINDOWS_DEADLINE)?)?)
    }
}

fn profile(daemon: &Daemon, arguments: &[&str]) -> Result<Value> {
    let arguments =
        [&["profile", "--format", "json", "--confidence", NEAR_CERTAIN_CONFIDENCE], arguments]
            .concat();
    let finished = daemon.sampler(&arguments)?.success("sampler profile")?;
    Ok(serde_json::from_slice(&finished.stdout)?)
}

/// Checks that processes of few windows have no interval, and neither has their sum. The sum's
/// value is an unbiased estimate, of many processes within a factor of two.
fn is_about_right(profile: &Value, truth: &Value) -> Result<()> {
    for (quantity, truth) in
        [("alloc_objects", &truth["objects"]), ("alloc_space", &truth["bytes"])]
    {
        let truth = truth.as_f64().context("no truth")?;
        let [value, low, high] = interval(&profile["totals"][quantity])?;
        println!("{quantity}: {value:.4e} ({low:.4e} … {high:.4e}), in truth {truth:.4e}");
        ensure!(low == 0.0 && high.is_infinite(), "{quantity}: {low} … {high}");
        ensure!((truth / 2.0..2.0 * truth).contains(&value), "{quantity}: {value} of {truth}");
    }
    Ok(())
}

/// Number of windows of each process of a profile.
fn windows(profile: &Value) -> Vec<u64> {
    let clusters = profile["reference"]["clusters"].as_array();
    clusters.into_iter().flatten().filter_map(|of| of["windows"].as_u64()).collect()
}

#[test]
fn short_processes_of_a_machine_are_estimated_together() -> Result<()> {
    let daemon = Daemon::start(&[], &["--all", "--windows", "10%"])?;
    let mut crew = Crew::start(&["exec", "60", "400", "600"])?;
    let truth = crew.run()?;
    // A process that exits between two moments of one answer has no CPU time in that answer.
    let profile = wait::until("a profile with a cost", || {
        let profile = profile(&daemon, &["--comm", "crew*"])?;
        Ok(profile["cost"]["share"]["value"].is_f64().then_some(profile))
    })?;
    is_about_right(&profile, &truth).with_context(|| daemon.log())?;
    let windows = windows(&profile);
    println!("windows {windows:?}");
    ensure!(windows.len() > 40, "{} processes", windows.len());
    let status = daemon.status()?;
    ensure!(status["unseen_calls"] == 0, "{}", status["unseen_calls"]);
    // The cost of windows includes the windows of processes that have exited.
    let share = profile["cost"]["share"]["value"].as_f64().context("no cost")?;
    ensure!(share > 0.0 && share < 0.2, "{share} of a budget of 10 %");
    daemon.stop()
}

#[test]
fn windows_of_a_tree_exclude_other_processes() -> Result<()> {
    let mut inside = Crew::start(&["fork", "40", "400", "600"])?;
    let mut outside = Crew::start(&["fork", "8", "400", "600"])?;
    let daemon = Daemon::start(&[inside.0.pid()], &["--follow", "--windows", "10%"])?;
    outside.run()?;
    let truth = inside.run()?;
    let profile = profile(&daemon, &[])?;
    is_about_right(&profile, &truth).with_context(|| daemon.log())?;
    ensure!(windows(&profile).len() <= 41, "processes of others: {:?}", profile["pids"]);
    daemon.stop()
}

#[test]
fn processes_too_short_for_windows_are_reported() -> Result<()> {
    let daemon = Daemon::start(&[], &["--all", "--windows", "1%"])?;
    // Each process runs for some milliseconds. Hardly one is alive at the first tick after the tick
    // that found it.
    let mut crew = Crew::start(&["fork", "1000", "8", "600"])?;
    crew.run()?;
    let text = daemon.sampler(&["profile", "--comm", "crew*"])?.success("sampler profile")?;
    let text = String::from_utf8(text.stdout)?.replace("\n          ", " ");
    for expected in ["a lower bound", "exited before a window was planned", "in no number"] {
        ensure!(text.contains(expected), "nothing on {expected:?} in:\n{text}");
    }
    daemon.stop()
}
