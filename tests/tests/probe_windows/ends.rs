//! Too few windows, the limits of windows, processes that end during a window, and invalid budgets.

use crate::compare::{after_windows, interval};
use anyhow::{Result, ensure};
use sampler_tests::child::kill;
use sampler_tests::windowed::{
    NEAR_CERTAIN_CONFIDENCE, Program, WINDOWS_DEADLINE, profile, windows,
};
use sampler_tests::{Daemon, again, breakpoints, wait};
use std::time::Duration;

const SIGUSR2: i32 = 12;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Largest number of attempts. In an attempt, more windows may have passed than wanted before the
/// profile is requested.
const TRIES: usize = 10;

#[test]
fn profiles_of_few_windows_have_no_interval() -> Result<()> {
    again::until("a profile of few windows", TRIES, few_windows_have_no_interval)
}

fn few_windows_have_no_interval() -> Result<Result<(), String>> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--windows", "0.5%"])?;
    // The test needs some windows, but few. A stopped program gets no further windows during the
    // query.
    wait::until_deadline("a window with an allocation", WINDOWS_DEADLINE, || {
        let profile = profile(&daemon, "0.95")?;
        let [value, ..] = interval(&profile["totals"]["alloc_space"])?;
        Ok((windows(&profile) > 0 && value > 0.0).then_some(()))
    })?;
    kill(program.pid(), SIGSTOP)?;
    let profile = profile(&daemon, "0.95")?;
    let text = String::from_utf8(daemon.sampler(&["profile"])?.success("sampler profile")?.stdout)?;
    kill(program.pid(), SIGCONT)?;
    if windows(&profile) >= 7 {
        return Ok(Err(format!("{} windows", windows(&profile))));
    }
    let [_, _, high] = interval(&profile["totals"]["alloc_space"])?;
    ensure!(high == f64::INFINITY, "an interval of few windows: {high}");
    for expected in ["no interval", "8 windows", "CPU time"] {
        ensure!(text.contains(expected), "nothing on {expected:?} in:\n{text}");
    }
    daemon.stop().map(Ok)
}

#[test]
fn queries_unsupported_by_windows_are_refused() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--windows", "2%"])?;
    let cases: [&[&str]; 8] = [
        &["set", "--interval", "1MiB"],
        &["profile", "--kind", "live"],
        &["profile", "--kind", "peak"],
        &["profile", "--kind", "mapped"],
        &["profile", "--last", "10s"],
        &["profile", "--min-size", "100"],
        &["profile", "--estimator", "calibrated"],
        &["lifetimes"],
    ];
    for arguments in cases {
        let finished = daemon.sampler(arguments)?;
        ensure!(finished.code() == 1, "{arguments:?}: {} {}", finished.code(), finished.stderr);
        ensure!(finished.stderr.lines().count() == 1, "{arguments:?}: {}", finished.stderr);
        ensure!(finished.stderr.contains("--windows"), "{arguments:?}: {}", finished.stderr);
    }
    daemon.stop()
}

#[test]
fn stops_execs_and_exits_in_a_window_do_no_harm() -> Result<()> {
    let mut program = Program::start(&["steady", "3000"])?;
    let daemon = Daemon::start(&[program.pid()], &["--windows", "20%"])?;
    after_windows(&daemon, 4, NEAR_CERTAIN_CONFIDENCE)?;
    let sites = breakpoints::sites(&daemon.status()?)?;
    let in_window = |pid: u32| {
        wait::until_deadline("a window", WINDOWS_DEADLINE, || {
            Ok((breakpoints::standing(pid, &sites)? > 0).then_some(()))
        })
    };
    // The program is stopped, as by a debugger, for longer than any window.
    in_window(program.pid())?;
    kill(program.pid(), SIGSTOP)?;
    let then = windows(&profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?);
    wait::pass(Duration::from_millis(500));
    ensure!(
        windows(&profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?) <= then + 1,
        "windows of a process that does nothing"
    );
    kill(program.pid(), SIGCONT)?;
    after_windows(&daemon, then + 4, NEAR_CERTAIN_CONFIDENCE)?;
    // Another program replaces the first. The counts so far stay.
    in_window(program.pid())?;
    program.0.signal(SIGUSR2)?;
    ensure!(program.0.line()? == "ready", "no ready line after execve");
    let then = windows(&profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?);
    after_windows(&daemon, then + 4, NEAR_CERTAIN_CONFIDENCE)?;
    in_window(program.pid())?;
    kill(program.pid(), 9)?;
    program.0.wait()?;
    let last = wait::until("the exit", || {
        let listed = daemon.json("ps")?;
        let state = listed["processes"][0]["state"].clone();
        Ok((state == "exited").then_some(listed))
    })?;
    let profile = profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?;
    ensure!(windows(&profile) >= then + 4, "windows were lost at the exit: {last}");
    let [value, low, high] = interval(&profile["totals"]["alloc_objects"])?;
    // With some dozen windows at this confidence, the lower end may be 0.
    ensure!(low < value && value < high && high.is_finite(), "{low} {value} {high}");
    daemon.stop()
}

#[test]
fn invalid_budgets_are_refused() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let pid = program.pid().to_string();
    for (budget, expected) in
        [("0%", "above 0%"), ("101%", "at most 100%"), ("1", "as 1%"), ("-2%", "above 0%")]
    {
        let finished = sampler_tests::daemon::samplerd(&["--pid", &pid, "--windows", budget])?;
        ensure!(finished.code() == 2, "{budget}: {}", finished.code());
        ensure!(finished.stderr.contains(expected), "{budget}: {}", finished.stderr);
    }
    let finished =
        sampler_tests::daemon::samplerd(&["--pid", &pid, "--interval", "4KiB", "--windows", "1%"])?;
    ensure!(finished.code() == 2 && finished.stderr.contains("--interval"), "{}", finished.stderr);
    Ok(())
}
