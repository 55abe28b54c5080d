//! What tells progress, and what traps add, beside the clock.

use crate::compare::{NO_COUNTERS, covers, interval, is_right_once};
use anyhow::{Context, Result, ensure};
use sampler_tests::budgeted::{LONG, Program, SURE, at, profile, windows};
use sampler_tests::child::kill;
use sampler_tests::{Daemon, breakpoints, build, wait};
use serde_json::Value;

#[test]
fn calls_of_a_rarer_function_tell_what_traps_add() -> Result<()> {
    // Of some 90 ns for each allocation; one in 126 comes through another function than the rest: more rarely than a marker may be called where traps
    // add most (9 µs apart), and oftener than what is too rare to be tried (one in 200).
    let program = Program::start(&["steady", "80", "140"])?;
    let path = build::compile("budget.c", &[])?.display().to_string();
    let options = [&["--max-overhead", "20%"], NO_COUNTERS].concat();
    let daemon = Daemon::start(&[program.pid()], &options)?;
    let found = wait::until_deadline("calls of a marker", LONG, || {
        let profile = profile(&daemon, "0.95")?;
        let marks = &profile["reference"]["clusters"][0]["correction"]["marks"];
        Ok((marks.as_u64().unwrap_or(0) > 1_000).then_some(profile))
    });
    let profile = found.with_context(|| daemon.log())?;
    let notes = profile["notes"].to_string();
    ensure!(notes.contains("probed for that, tell so"), "no word of it in {notes}");
    // Nothing of the program itself stays probed.
    let is_whole = || Ok((breakpoints::changed(program.pid(), &path)? == 0).then_some(()));
    wait::until_deadline("a time without probes", LONG, is_whole)?;
    daemon.stop()?;
    ensure!(breakpoints::changed(program.pid(), &path)? == 0, "a probe is left");
    Ok(())
}

#[test]
fn what_a_server_reads_and_writes_stands_for_its_progress() -> Result<()> {
    // Of some 70 ns for each allocation, and nothing in a third of the time: by its clock it would be known to ± 40 % or so.
    let clusters = |profile: &Value| profile["reference"]["clusters"][0].clone();
    let by_traffic = |profile: &Value, _: &Value| {
        clusters(profile)["correction"]["traffic_bytes"].as_u64().unwrap_or(0) > 0
    };
    let (profile, _) = is_right_once(&["serve", "60"], ("20%", NO_COUNTERS), 40, by_traffic)?;
    let [value, low, high] = interval(&profile["totals"]["alloc_objects"])?;
    let half = (high - low) / 2.0 / value;
    println!("± {half:.3}");
    ensure!(half < 0.2, "± {half} of {profile}");
    let notes = profile["notes"].to_string();
    ensure!(notes.contains("what the program has read and written"), "no word of it in {notes}");
    Ok(())
}

#[test]
fn a_counter_of_the_program_stands_for_its_progress() -> Result<()> {
    // It counts in its own memory what it has allocated; by its clock that would never be known to better than ± 30 % or so.
    let by_counter = |profile: &Value, _: &Value| {
        let correction = &profile["reference"]["clusters"][0]["correction"];
        let tallied = correction["tallied"].as_u64().unwrap_or(0);
        let [value, low, high] = interval(&profile["totals"]["alloc_objects"]).unwrap_or_default();
        println!("± {:.3} by {tallied} counts", (high - low) / 2.0 / value);
        tallied > 0 && high - low < 0.3 * value
    };
    let (profile, _) = is_right_once(&["steady", "60"], ("20%", &[]), 40, by_counter)?;
    let notes = profile["notes"].to_string();
    ensure!(notes.contains("of the program's own (budget"), "no word in {notes}");
    Ok(())
}

/// Of groups of windows, the part in which as much was allocated for what the program's own counter has counted as in the one in the middle, to within a hundredth.
fn alike(profile: &Value) -> f64 {
    let groups = profile["reference"]["clusters"][0]["groups"].as_array();
    let ratio =
        |group: &Value| Some(group["objects"].as_f64()? / group["length"].as_f64()?.max(1e-9));
    let mut ratios: Vec<f64> = groups.into_iter().flatten().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let Some(middle) = ratios.get(ratios.len() / 2).copied() else { return 0.0 };
    let alike = ratios.iter().filter(|of| (*of / middle - 1.0).abs() < 0.01).count();
    alike as f64 / ratios.len() as f64
}

#[test]
fn windows_meet_whole_rounds_of_a_loop() -> Result<()> {
    // Of 20,000 allocations each, and a window takes two or three: from one tick to another it would have met one and a half, or three and a third.
    let mut program = Program::start(&["rounds", "10"])?;
    let objects =
        |program: &mut Program| -> Result<f64> { Ok(at(&program.truth()?, "steady_site", 0)) };
    let start = objects(&mut program)?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "10%"])?;
    let attached = objects(&mut program)?;
    wait::until_deadline("windows that are alike", LONG, || -> Result<Option<()>> {
        let profile = profile(&daemon, "0.95")?;
        let tallied = profile["reference"]["clusters"][0]["correction"]["tallied"].as_u64();
        let (alike, windows) = (alike(&profile), windows(&profile));
        println!("{alike:.2} of {windows} windows, {tallied:?} counts");
        Ok((tallied.unwrap_or(0) > 0 && windows >= 20 && alike > 0.6).then_some(()))
    })?;
    let before = objects(&mut program)?;
    let sure = profile(&daemon, SURE)?;
    let after = objects(&mut program)?;
    let told = interval(&sure["totals"]["alloc_objects"])?;
    covers("objects", told, before - attached, after - start)?;
    daemon.stop()
}

#[test]
fn what_a_counter_has_told_stays_where_its_program_ends_in_a_window() -> Result<()> {
    let mut program = Program::start(&["steady", "60"])?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "20%"])?;
    // Of what traps add, by what is usual on the machine: 35 % at least.
    let unknown = |profile: &Value| {
        let correction = &profile["reference"]["clusters"][0]["correction"];
        let number = |key: &str| correction[key].as_f64().unwrap_or(f64::INFINITY);
        number("allocating_error_ns") / number("allocating_ns")
    };
    let before = wait::until_deadline("what a counter tells", LONG, || {
        let profile = profile(&daemon, SURE)?;
        let unknown = unknown(&profile);
        Ok((windows(&profile) >= 40 && unknown < 0.2).then_some(unknown))
    })?;
    let sites = breakpoints::sites(&daemon.status()?)?;
    wait::until_deadline("a window", LONG, || {
        Ok((breakpoints::standing(program.pid(), &sites)? > 0).then_some(()))
    })?;
    kill(program.pid(), 9)?;
    program.0.wait()?;
    wait::until("the exit", || {
        let state = daemon.json("ps")?["processes"][0]["state"].clone();
        Ok((state == "exited").then_some(()))
    })?;
    let after = unknown(&profile(&daemon, SURE)?);
    println!("{before:.3} before, {after:.3} after");
    ensure!(after < 1.3 * before, "{before} before, {after} after: {}", daemon.log());
    daemon.stop()
}

#[test]
fn what_traps_add_to_code_behind_them_is_measured_where_it_counts() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let behind = |options: &[&str]| -> Result<Value> {
        let daemon = Daemon::start(&[program.pid()], options)?;
        let status = daemon.status()?;
        daemon.stop()?;
        Ok(status["prices"]["behind_ns"].clone())
    };
    let [value, low, high] = interval(&behind(&["--max-overhead", "1%"])?)?;
    println!("{value} ({low} … {high}) ns");
    // A trap takes half a microsecond and more, and what comes behind it less.
    ensure!(value < 2_000.0 && low < high && high.is_finite(), "{value} ({low} … {high}) ns");
    ensure!(behind(&[])?.is_null(), "without windows nothing is corrected for it");
    Ok(())
}
