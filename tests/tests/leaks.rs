//! Which of a program's functions grow, compared with the program's own counts.

use anyhow::{Context, Result, bail, ensure};
use sampler_tests::{Daemon, Truth, Workload, wait};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;
/// A right program fails once in a million runs at this confidence, though each run judges some
/// dozens of intervals.
const CONFIDENCE: [&str; 2] = ["--confidence", "0.99999999"];

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64)
}

/// A border of time slots after everything that has happened so far.
fn border(daemon: &Daemon) -> Result<u64> {
    let from = now()?;
    let start = |profile: &sampler_tests::Profile| profile.json["window"]["start_unix_ns"].as_u64();
    let profile = daemon.profile_where("a border", "alloc", &["--last", "1ms"], |profile| {
        start(profile).is_some_and(|start| start > from)
    })?;
    start(&profile).context("no window")
}

/// `sampler leaks` with `arguments`.
fn leaks(daemon: &Daemon, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["leaks", "--json"][..], &CONFIDENCE, arguments].concat();
    let finished = daemon.sampler(&arguments)?.success("leaks")?;
    Ok(serde_json::from_slice(&finished.stdout)?)
}

/// The argument of `--over` that reaches back to a little after `border`. If the query follows
/// soon, the slot that begins at `border` is the first.
fn since(border: u64) -> Result<String> {
    let passed_ms = (now()? - border) / 1_000_000;
    Ok(format!("{}ms", (passed_ms - (passed_ms / 2).min(300)).max(1)))
}

/// Growth since a border. The daemon counts back from the time of the query. A query that takes
/// longer than to the next border is repeated.
fn leaks_since(daemon: &Daemon, border: u64) -> Result<Value> {
    let mut begins = 0;
    let found = wait::until("growth since the border", || {
        let json = leaks(daemon, &["--over", &since(border)?])?;
        begins = json["start_unix_ns"].as_u64().context("no start")?;
        Ok((begins.abs_diff(border) < SECOND / 100).then_some(json))
    });
    found.with_context(|| format!("begins at {begins}, not {border}"))
}

/// Growth since a border as text. The text does not give its start to the millisecond, so only an
/// answer within half a second counts as in time.
fn text_since(daemon: &Daemon, border: u64) -> Result<String> {
    wait::until("an answer in time", || {
        let (from, over) = (now()?, since(border)?);
        let arguments = [&["leaks", "--over", &over][..], &CONFIDENCE].concat();
        let text = String::from_utf8(daemon.sampler(&arguments)?.success("leaks")?.stdout)?;
        Ok((now()? - from < SECOND / 2).then_some(text))
    })
}

/// The stack of a function in the answer.
fn stack<'a>(json: &'a Value, function: &str) -> Result<&'a Value> {
    let stacks = json["stacks"].as_array().context("no stacks")?;
    let has = |stack: &&Value| {
        let mut frames = stack["frames"].as_array().into_iter().flatten();
        frames.any(|frame| frame["function"] == function)
    };
    stacks.iter().find(has).with_context(|| format!("no {function} in {json}"))
}

fn interval(json: &Value) -> Result<[f64; 3]> {
    let of = |end: &str| json[end].as_f64().with_context(|| format!("no {end} in {json}"));
    Ok([of("value")?, of("low")?, of("high")?])
}

/// True growth of a function, bytes.
fn grown(before: &Truth, after: &Truth, name: &str) -> Result<f64> {
    let held = |of: &Truth| of.function(name).map(|of| of.live.bytes as f64);
    Ok(held(after)? - held(before)?)
}

/// Checks that the bounds of each function's stack cover the truth.
fn truths_are_within(json: &Value, before: &Truth, after: &Truth, names: &[&str]) -> Result<()> {
    for name in names {
        let of = stack(json, name)?;
        let (truth, [value, low, high]) = (grown(before, after, name)?, interval(&of["growth"])?);
        ensure!(low <= truth && truth <= high, "{name}: {truth} is not in {low} to {high}");
        ensure!(low <= value && value <= high, "{name}: {of}");
    }
    Ok(())
}

/// Checks that the history begins and ends with what the function held.
fn history_is_within(of: &Value, before: &Truth, after: &Truth, name: &str) -> Result<()> {
    let history = of["history"].as_array().context("no history")?;
    let [first, .., last] = history.as_slice() else { bail!("{name}: {of}") };
    for (at, truth) in [(first, before), (last, after)] {
        let truth = truth.function(name)?.live.bytes as f64;
        let [_, low, high] = interval(at)?;
        ensure!(low <= truth && truth <= high, "{name}: {truth} is not in {low} to {high}");
    }
    let grown = interval(last)?[0] - interval(first)?[0];
    let growth = interval(&of["growth"])?[0];
    ensure!((grown - growth).abs() < 1.0, "{name}: {grown} by its history, else {growth}");
    Ok(())
}

fn turn(workload: &mut Workload, how: &str) -> Result<Truth> {
    workload.child().send(how)?;
    workload.truth()
}

#[test]
fn only_the_leak_is_named() -> Result<()> {
    let mut workload = Workload::start("leaks.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "4096"])?;
    let filled = turn(&mut workload, "steady")?;
    // Pool and cache were filled. So far, that is growth.
    let since_attach = leaks(&daemon, &["--over", "1h"])?;
    ensure!(since_attach["growing"] == 2, "{since_attach}");
    let text = since_attach["notes"].to_string();
    ensure!(text.contains("all that is held counts as growth"), "{text}");

    let first = border(&daemon)?;
    let leaked = turn(&mut workload, "leak")?;
    let json = leaks_since(&daemon, first)?;
    ensure!(json["growing"] == 1 && json["stacks"][0]["growing"] == true, "{json}");
    let leak = stack(&json, "leak")?;
    ensure!(*leak == json["stacks"][0], "the leak is not the first: {json}");
    truths_are_within(&json, &filled, &leaked, &["leak", "steady", "cache"])?;
    ensure!(leak["kept"]["value"] == 1.0 && leak["went"] == 0, "{leak}");
    for name in ["leak", "steady", "cache"] {
        history_is_within(stack(&json, name)?, &filled, &leaked, name)?;
    }
    let [kept, low, high] = interval(&stack(&json, "steady")?["kept"])?;
    // 2,000 blocks were allocated and 400 stayed.
    ensure!(low <= 0.2 && (0.2..0.5).contains(&high), "steady keeps {kept}, {low} to {high}");
    let [total, low, high] = interval(&json["total"]["growth"])?;
    let truth = grown(&filled, &leaked, "leak")?;
    ensure!(low <= truth && truth <= high, "{truth} in all is not in {low} to {high} ({total})");
    let rate = interval(&leak["bytes_per_second"])?[0];
    let seconds = json["seconds"].as_f64().context("no seconds")?;
    ensure!((rate * seconds / interval(&leak["growth"])?[0] - 1.0).abs() < 1e-9, "{leak}");

    let text = text_since(&daemon, first)?;
    ensure!(text.contains("growing   1 of 3 stacks that changed"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let answer = format!(") of pid {} holds more and more: ", workload.pid());
    ensure!(words.contains("leak (leaks.c:") && words.contains(&answer), "{text}");
    ensure!(text.contains("      leak  leaks.c:") && !text.contains("steady"), "{text}");
    ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    // Afterwards nothing grows. The growth that may have been missed is at least the true growth.
    let second = border(&daemon)?;
    let calm = turn(&mut workload, "steady")?;
    let json = leaks_since(&daemon, second)?;
    ensure!(json["growing"] == 0, "{json}");
    truths_are_within(&json, &leaked, &calm, &["steady", "cache"])?;
    ensure!(json["most_missed"].as_f64().context("no number")? > 0.0, "{json}");
    let text = text_since(&daemon, second)?;
    ensure!(text.contains("growing   nothing by more than chance"), "{text}");
    // Over both phases the leak is found again.
    let json = leaks_since(&daemon, first)?;
    ensure!(json["growing"] == 1, "{json}");
    truths_are_within(&json, &filled, &calm, &["leak", "steady", "cache"])?;

    workload.exit()?;
    let gone = |profile: &sampler_tests::Profile| profile.totals.inuse_space.value == 0.0;
    daemon.profile_where("the exit", "live", &[], gone)?;
    let refused = daemon.sampler(&["leaks", "--pid", &workload.pid().to_string()])?;
    ensure!(refused.code() == 1 && refused.stderr.contains("has exited"), "{}", refused.stderr);
    daemon.stop()
}

#[test]
fn leaks_without_held_bytes_are_refused() -> Result<()> {
    for (arguments, words) in [
        (&["--no-live"][..], "start samplerd without --no-live"),
        (&["--strategy", "stride"], "stride"),
        (&["--windows", "5%"], "--windows"),
    ] {
        let workload = Workload::start("leaks.c", &[])?;
        let daemon = Daemon::start(&[workload.pid()], arguments)?;
        let refused = daemon.sampler(&["leaks"])?;
        ensure!(refused.code() == 1 && refused.stderr.lines().count() == 1, "{}", refused.stderr);
        ensure!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        daemon.stop()?;
    }
    Ok(())
}
