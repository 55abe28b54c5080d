//! `--max-overhead`: the fine clock ticks on every CPU, whoever runs there, so it must not go on for a process that stands still in its window. Alone in its file: what ticks is the
//! whole machine's.

use anyhow::{Context, Result, ensure};
use sampler_tests::budgeted::{LONG, Program, SURE, at, profile, windows};
use sampler_tests::child::kill;
use sampler_tests::{Daemon, wait};
use std::fs;
use std::time::Duration;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
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

/// What the program has allocated so far.
fn objects(program: &mut Program) -> Result<f64> {
    let truth = program.truth()?;
    Ok(at(&truth, "steady_site", 0) + at(&truth, "rare_site", 0))
}

#[test]
fn the_fine_clock_rests_while_a_process_stands_still_in_its_window() -> Result<()> {
    let mut program = Program::start(&["steady", "600"])?;
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
    let then = windows(&profile(&daemon, SURE)?);
    ensure!(then > 0, "no windows");
    wait::until_deadline("more windows", LONG, || {
        Ok(is_told(windows(&profile(&daemon, SURE)?) >= then + 30))
    })?;
    let before = objects(&mut program)?;
    let told = profile(&daemon, SURE)?["totals"]["alloc_objects"].clone();
    let after = objects(&mut program)?;
    let number = |key: &str| told[key].as_f64().with_context(|| format!("no {key} in {told}"));
    let (low, high) = (number("low")?, number("high")?);
    let (least, most) = (before - attached, after - start);
    println!("{low:.4e} to {high:.4e}, in truth {least:.4e} to {most:.4e}");
    ensure!(low <= most && least <= high, "{told}, in truth {least} to {most}");
    daemon.stop()
}
