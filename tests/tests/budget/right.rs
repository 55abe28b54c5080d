//! Estimates and costs are right, whatever the program does.

use crate::compare::{NO_COUNTERS, interval, is_right, is_right_once, share};
use anyhow::{Context, Result, ensure};
use sampler_tests::budgeted::{LONG, Program, at};
use sampler_tests::{Daemon, breakpoints, wait};
use serde_json::Value;

#[test]
fn a_program_that_windows_slow_down_eight_times_is_estimated_right() -> Result<()> {
    // By the share of the wall's time that windows took it would be an eighth or less, however many there were.
    let all = |truth: &Value| at(truth, "steady_site", 0) + at(truth, "rare_site", 0);
    let says_enough = |profile: &Value, truth: &Value| {
        let low = interval(&profile["totals"]["alloc_objects"]).map_or(0.0, |[_, low, _]| low);
        println!("from {:.2} of the truth at 95 %", low / all(truth));
        low > all(truth) / 5.0
    };
    // 60 steps: some 70 ns of its own for each allocation, beside 600 ns for each trap.
    let (profile, truth) =
        is_right_once(&["steady", "60"], ("20%", NO_COUNTERS), 110, says_enough)?;
    let objects = all(&truth);
    let own_ns = truth["cpu_ns"].as_f64().context("cpu_ns")? * (1.0 - share(&profile)?) / objects;
    println!("{own_ns} ns an allocation, {objects} objects");
    ensure!(own_ns < 300.0, "the program is too slow for this test: {own_ns} ns an allocation");
    ensure!(share(&profile)? < 0.30, "a budget of 20 %: {}", share(&profile)?);
    Ok(())
}

#[test]
fn programs_that_change_are_estimated_right() -> Result<()> {
    // No interval has what no window has met: so many meet some of the bursts, but for one run in many millions.
    for (manner, least) in [("phases", 40), ("bursts", 160), ("idle", 40)] {
        println!("{manner}");
        is_right(manner, "600", "20%", least).with_context(|| manner.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_small_budget_is_kept() -> Result<()> {
    let (profile, _) = is_right("steady", "2000", "1%", 12)?;
    let share = share(&profile)?;
    println!("share {share}");
    ensure!(share < 0.02, "a budget of 1 %: {share}");
    Ok(())
}

#[test]
fn nothing_is_probed_between_windows() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "1%"])?;
    let sites = breakpoints::sites(&daemon.status()?)?;
    ensure!(!sites.is_empty(), "no probes in status");
    // Between a window and the next the code is as the file has it; in one it is not.
    let standing = || breakpoints::standing(program.pid(), &sites);
    wait::until_deadline("a window", LONG, || Ok((standing()? > 0).then_some(())))?;
    wait::until_deadline("no window", LONG, || Ok((standing()? == 0).then_some(())))?;
    daemon.stop()?;
    ensure!(standing()? == 0, "probes are left");
    Ok(())
}
