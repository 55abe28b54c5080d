//! `--max-overhead`: the fine clock ticks on every CPU, whoever runs there, so it must not go on for a process that stands still in its window. Alone in its file: what ticks is the
//! whole machine's.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, kill};
use sampler_tests::{Daemon, build, wait};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const SIGUSR1: i32 = 10;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
/// How long windows may take to come.
const LONG: Duration = Duration::from_secs(150);
/// Confidence of intervals that a right implementation leaves less than once in a million runs.
const SURE: &str = "0.999999";

/// Timers of perf events in user mode that tick now: one on each CPU for the clock of progress, another for the fine one.
fn ticking() -> Result<usize> {
    let timers = fs::read_to_string("/proc/timer_list").context("read /proc/timer_list")?;
    Ok(timers.lines().filter(|line| line.contains("perf_swevent_hrtimer")).count())
}

/// The same between windows: the least of many looks, since a window may be open at any of them.
fn between_windows() -> Result<usize> {
    let mut least = usize::MAX;
    for _ in 0..100 {
        least = least.min(ticking()?);
        wait::pass(Duration::from_millis(10));
    }
    Ok(least)
}

fn profile(daemon: &Daemon) -> Result<Value> {
    let arguments = ["profile", "--format", "json", "--confidence", SURE];
    let finished = daemon.sampler(&arguments)?.success("sampler profile")?;
    Ok(serde_json::from_slice(&finished.stdout)?)
}

/// What the program has allocated so far.
fn objects(program: &mut Child) -> Result<f64> {
    program.signal(SIGUSR1)?;
    let truth: Value = serde_json::from_str(&program.line()?)?;
    let of = |site: &str| truth[site][0].as_f64().context("no count");
    Ok(of("steady_site")? + of("rare_site")?)
}

#[test]
fn the_fine_clock_rests_while_a_process_stands_still_in_its_window() -> Result<()> {
    let path = build::compile("budget.c", &[])?;
    let mut program = Child::start("budget", Command::new(path).args(["steady", "600"]))?;
    ensure!(program.line()? == "ready", "no ready line");
    let start = objects(&mut program)?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "20%"])?;
    let attached = objects(&mut program)?;
    let is_told = |told: bool| told.then_some(());
    let clock = between_windows()?;
    for number in 0..12 {
        // Both clocks: a window is open, or its probes are there.
        wait::until_deadline("a window", LONG, || Ok(is_told(ticking()? > clock)))?;
        kill(program.pid(), SIGSTOP)?;
        let rests = wait::until("the fine clock rests", || Ok(is_told(ticking()? <= clock)));
        rests.with_context(|| {
            format!("stop {number}: {} of {clock} timers", ticking().unwrap_or(0))
        })?;
        kill(program.pid(), SIGCONT)?;
    }
    // Windows go on, and stand for what there was.
    let windows = |profile: &Value| profile["reference"]["clusters"][0]["windows"].as_u64();
    let then = windows(&profile(&daemon)?).context("no windows")?;
    wait::until_deadline("more windows", LONG, || {
        Ok(is_told(windows(&profile(&daemon)?).is_some_and(|now| now >= then + 30)))
    })?;
    let before = objects(&mut program)?;
    let told = profile(&daemon)?["totals"]["alloc_objects"].clone();
    let after = objects(&mut program)?;
    let number = |key: &str| told[key].as_f64().with_context(|| format!("no {key} in {told}"));
    let (low, high) = (number("low")?, number("high")?);
    let (least, most) = (before - attached, after - start);
    println!("{low:.4e} to {high:.4e}, in truth {least:.4e} to {most:.4e}");
    ensure!(low <= most && least <= high, "{told}, in truth {least} to {most}");
    daemon.stop()
}
