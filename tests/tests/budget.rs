//! `--max-overhead`: what is seen in windows stands for all of it, at a bounded cost.

use anyhow::{Context, Result, ensure};
use sampler_tests::budgeted::{LONG, Program, SURE, at, profile, windows};
use sampler_tests::child::kill;
use sampler_tests::{Daemon, breakpoints, build, wait};
use serde_json::Value;
use std::time::Duration;

const SIGUSR2: i32 = 12;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Waits until there were so many windows; the last profile.
fn after_windows(daemon: &Daemon, least: u64, confidence: &str) -> Result<Value> {
    let mut last = 0;
    let found = wait::until_deadline("windows", LONG, || {
        let profile = profile(daemon, confidence)?;
        last = windows(&profile);
        Ok((last >= least).then_some(profile))
    });
    found.with_context(|| format!("{last} windows of {least}; log: {}", daemon.log()))
}

/// The interval of a quantity: value, low, high (infinite: it has none).
fn interval(of: &Value) -> Result<[f64; 3]> {
    let number = |key: &str| of[key].as_f64();
    let (value, low) = (number("value").context("value")?, number("low").context("low")?);
    Ok([value, low, number("high").unwrap_or(f64::INFINITY)])
}

/// Whether what was allocated between two truths lies in the interval of the profile that was taken between them, to within the moments between.
fn covers(what: &str, [value, low, high]: [f64; 3], before: f64, after: f64) -> Result<()> {
    println!("{what}: {value:.4e} ({low:.4e} … {high:.4e}), in truth {before:.4e} … {after:.4e}");
    ensure!(high.is_finite(), "{what}: no interval");
    ensure!(
        low <= after && before <= high,
        "{what}: {value} ({low} … {high}), in truth {before} to {after}"
    );
    Ok(())
}

/// The stacks of a site together: the value and the widest ends. (A site has one stack in this program.)
fn site(profile: &Value, name: &str, quantity: &str) -> Result<[f64; 3]> {
    let stacks = profile["stacks"].as_array().context("no stacks")?;
    let is_its = |stack: &&Value| {
        let frames = stack["frames"].as_array().into_iter().flatten();
        frames.into_iter().any(|frame| frame.as_str() == Some(name))
    };
    let mut all = stacks.iter().filter(is_its);
    let first = interval(&all.next().with_context(|| format!("no stack of {name}"))?[quantity])?;
    ensure!(all.next().is_none(), "{name} has several stacks");
    Ok(first)
}

/// Nothing but the clock: the program counts itself what it does, and that would be found.
const NO_COUNTERS: &[&str] = &["--no-memory-scan"];

/// Profiles a program for a number of windows, and compares; the profile at 95 %, and the truth.
fn is_right(manner: &str, steps: &str, budget: &str, least: u64) -> Result<(Value, Value)> {
    is_right_once(&[manner, steps], (budget, NO_COUNTERS), least, |_, _| true)
}

/// The same, of as many windows more as it takes until that profile says enough, by a truth after it.
fn is_right_once(
    program: &[&str],
    (budget, options): (&str, &[&str]),
    least: u64,
    says_enough: impl Fn(&Value, &Value) -> bool,
) -> Result<(Value, Value)> {
    let mut program = Program::start(program)?;
    let start = program.truth()?;
    let options = [&["--max-overhead", budget], options].concat();
    let daemon = Daemon::start(&[program.pid()], &options)?;
    let attached = program.truth()?;
    after_windows(&daemon, least, SURE)?;
    let told = wait::until_deadline("an interval that says enough", LONG, || {
        let (usual, truth) = (profile(&daemon, "0.95")?, program.truth()?);
        Ok(says_enough(&usual, &truth).then_some((usual, truth)))
    })?;
    let before = program.truth()?;
    let sure = profile(&daemon, SURE)?;
    let after = program.truth()?;
    for (which, quantity) in [(0, "alloc_objects"), (1, "alloc_space")] {
        let sum = |truth: &Value| at(truth, "steady_site", which) + at(truth, "rare_site", which);
        let (least, most) = (sum(&before) - sum(&attached), sum(&after) - sum(&start));
        covers(quantity, interval(&sure["totals"][quantity])?, least, most)?;
        for name in ["steady_site", "rare_site"] {
            let (least, most) = (
                at(&before, name, which) - at(&attached, name, which),
                at(&after, name, which) - at(&start, name, which),
            );
            covers(&format!("{name} {quantity}"), site(&sure, name, quantity)?, least, most)?;
        }
    }
    daemon.stop()?;
    tells_its_correction(&sure)?;
    Ok(told)
}

/// Whether a profile says what it was corrected for, and what of its error that is.
fn tells_its_correction(profile: &Value) -> Result<()> {
    let clusters = &profile["reference"]["clusters"][0];
    let number = |of: &Value| of.as_f64().with_context(|| format!("no number in {clusters}"));
    let correction = &clusters["correction"];
    let [drag, clock] = ["of_drag", "of_clock"].map(|part| number(&correction[part]));
    let (parts, error) = (drag?.hypot(clock?), number(&clusters["error"])?);
    ensure!((parts / error - 1.0).abs() < 1e-6, "{parts} of {error}");
    let [m, error] = ["allocating_ns", "allocating_error_ns"].map(|part| number(&correction[part]));
    println!("a trap adds {} ns ± {}", m?, error?);
    Ok(())
}

/// What its windows have cost a process, of its CPU time.
fn share(profile: &Value) -> Result<f64> {
    profile["cost"]["share"]["value"]
        .as_f64()
        .with_context(|| format!("no cost: {}", profile["cost"]))
}

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

#[test]
fn before_there_are_windows_enough_there_is_no_interval() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "0.5%"])?;
    let profile = profile(&daemon, "0.95")?;
    ensure!(windows(&profile) < 8, "they came too soon for this test");
    let [_, _, high] = interval(&profile["totals"]["alloc_space"])?;
    ensure!(high == f64::INFINITY, "an interval of nothing: {high}");
    let text = String::from_utf8(daemon.sampler(&["profile"])?.success("sampler profile")?.stdout)?;
    for expected in ["no interval", "8 windows", "CPU time"] {
        ensure!(text.contains(expected), "nothing on {expected:?} in:\n{text}");
    }
    daemon.stop()
}

#[test]
fn what_windows_cannot_know_is_refused() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "2%"])?;
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
        ensure!(finished.stderr.contains("--max-overhead"), "{arguments:?}: {}", finished.stderr);
    }
    daemon.stop()
}

#[test]
fn a_process_that_stops_execs_or_exits_in_a_window_harms_nothing() -> Result<()> {
    let mut program = Program::start(&["steady", "600"])?;
    let daemon = Daemon::start(&[program.pid()], &["--max-overhead", "20%"])?;
    after_windows(&daemon, 4, SURE)?;
    let sites = breakpoints::sites(&daemon.status()?)?;
    let in_window = |pid: u32| {
        wait::until_deadline("a window", LONG, || {
            Ok((breakpoints::standing(pid, &sites)? > 0).then_some(()))
        })
    };
    // Stopped, as by a debugger, for longer than any window.
    in_window(program.pid())?;
    kill(program.pid(), SIGSTOP)?;
    let then = windows(&profile(&daemon, SURE)?);
    wait::pass(Duration::from_millis(500));
    ensure!(
        windows(&profile(&daemon, SURE)?) <= then + 1,
        "windows of a process that does nothing"
    );
    kill(program.pid(), SIGCONT)?;
    after_windows(&daemon, then + 4, SURE)?;
    // Another program in its place: what was seen before stays.
    in_window(program.pid())?;
    program.0.signal(SIGUSR2)?;
    ensure!(program.0.line()? == "ready", "no ready line after execve");
    let then = windows(&profile(&daemon, SURE)?);
    after_windows(&daemon, then + 4, SURE)?;
    in_window(program.pid())?;
    kill(program.pid(), 9)?;
    program.0.wait()?;
    let last = wait::until("the exit", || {
        let listed = daemon.json("ps")?;
        let state = listed["processes"][0]["state"].clone();
        Ok((state == "exited").then_some(listed))
    })?;
    let profile = profile(&daemon, SURE)?;
    ensure!(windows(&profile) >= then + 4, "windows were lost at the exit: {last}");
    let [value, low, high] = interval(&profile["totals"]["alloc_objects"])?;
    // Some dozen windows: at this confidence the lower end may be nothing.
    ensure!(low < value && value < high && high.is_finite(), "{low} {value} {high}");
    daemon.stop()
}

#[test]
fn budgets_that_are_none() -> Result<()> {
    let program = Program::start(&["steady", "600"])?;
    let pid = program.pid().to_string();
    for (budget, expected) in
        [("0%", "above 0%"), ("101%", "at most 100%"), ("1", "as 1%"), ("-2%", "above 0%")]
    {
        let finished = sampler_tests::daemon::samplerd(&["--pid", &pid, "--max-overhead", budget])?;
        ensure!(finished.code() == 2, "{budget}: {}", finished.code());
        ensure!(finished.stderr.contains(expected), "{budget}: {}", finished.stderr);
    }
    let finished = sampler_tests::daemon::samplerd(&[
        "--pid",
        &pid,
        "--interval",
        "4KiB",
        "--max-overhead",
        "1%",
    ])?;
    ensure!(finished.code() == 2 && finished.stderr.contains("--interval"), "{}", finished.stderr);
    Ok(())
}
