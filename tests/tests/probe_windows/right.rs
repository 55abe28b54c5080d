//! Estimates and costs are right, whatever the program does.

use crate::compare::{interval, is_right, share};
use anyhow::{Context, Result, ensure};
use sampler_tests::windowed::{Program, WINDOWS_DEADLINE, at};
use sampler_tests::{Daemon, breakpoints, wait};
use serde_json::Value;

fn all(truth: &Value) -> f64 {
    at(truth, "steady_site", 0) + at(truth, "rare_site", 0)
}

#[test]
fn estimates_hold_when_windows_slow_a_program_eight_times() -> Result<()> {
    // 60 steps: the program takes some 70 ns for each allocation, and each trap takes 600 ns.
    let (profile, truth) = is_right(&["steady", "60"], "20%", 80)?;
    let [value, low, high] = interval(&profile["totals"]["alloc_objects"])?;
    println!("{low} … {value} … {high}, in truth {}", all(&truth));
    // An estimate by the windows' share of wall time would be an eighth or less, however many
    // windows there were.
    ensure!(low > all(&truth) / 4.0, "from {low}, in truth {}", all(&truth));
    // A trap may add more than the program's own time for each allocation. The number of missed
    // allocations is unknown.
    ensure!(high.is_infinite(), "{high}");
    let own_ns =
        truth["cpu_ns"].as_f64().context("cpu_ns")? * (1.0 - share(&profile)?) / all(&truth);
    ensure!(own_ns < 300.0, "the program is too slow for this test: {own_ns} ns an allocation");
    ensure!(share(&profile)? < 0.30, "a budget of 20 %: {}", share(&profile)?);
    Ok(())
}

#[test]
fn programs_of_changing_phases_are_estimated_right() -> Result<()> {
    // No interval covers what falls into no window. This many windows catch some of the bursts,
    // except in one run of many millions.
    for (manner, least) in [("phases", 40), ("bursts", 160), ("idle", 40)] {
        println!("{manner}");
        let (profile, truth) = is_right(&[manner, "3000"], "20%", least).context(manner)?;
        // Some 3 µs for each allocation: the upper end is finite and useful.
        let [_, _, high] = interval(&profile["totals"]["alloc_objects"])?;
        ensure!(high < 4.0 * all(&truth), "{manner}: up to {high}, in truth {}", all(&truth));
    }
    Ok(())
}

#[test]
fn a_small_budget_is_kept() -> Result<()> {
    let (profile, _) = is_right(&["steady", "2000"], "1%", 12)?;
    let share = share(&profile)?;
    println!("share {share}");
    ensure!(share < 0.02, "a budget of 1 %: {share}");
    Ok(())
}

#[test]
fn nothing_is_probed_between_windows() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--windows", "1%"])?;
    let sites = breakpoints::sites(&daemon.status()?)?;
    ensure!(!sites.is_empty(), "no probes in status");
    // Between windows the code is as in the file. During a window it is not.
    let standing = || breakpoints::standing(program.pid(), &sites);
    wait::until_deadline("a window", WINDOWS_DEADLINE, || Ok((standing()? > 0).then_some(())))?;
    wait::until_deadline("no window", WINDOWS_DEADLINE, || Ok((standing()? == 0).then_some(())))?;
    daemon.stop()?;
    ensure!(standing()? == 0, "probes are left");
    Ok(())
}
