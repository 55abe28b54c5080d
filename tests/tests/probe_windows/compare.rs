//! Results of windows, compared with the program's own counts.

use anyhow::{Context, Result, ensure};
use sampler_tests::windowed::{
    NEAR_CERTAIN_CONFIDENCE, Program, WINDOWS_DEADLINE, at, profile, windows,
};
use sampler_tests::{Daemon, wait};
use serde_json::Value;

/// Waits until there were `least` windows. Returns the last profile.
pub(crate) fn after_windows(daemon: &Daemon, least: u64, confidence: &str) -> Result<Value> {
    let mut last = 0;
    let found = wait::until_deadline("windows", WINDOWS_DEADLINE, || {
        let profile = profile(daemon, confidence)?;
        last = windows(&profile);
        Ok((last >= least).then_some(profile))
    });
    found.with_context(|| format!("{last} windows of {least}; log: {}", daemon.log()))
}

/// The interval of a quantity: value, low, high (infinite: it has none).
pub(crate) fn interval(of: &Value) -> Result<[f64; 3]> {
    let number = |key: &str| of[key].as_f64();
    let (value, low) = (number("value").context("value")?, number("low").context("low")?);
    Ok([value, low, number("high").unwrap_or(f64::INFINITY)])
}

/// Checks that the interval of a profile covers the truth. `before` and `after` are the truths
/// right before and after the profile.
pub(crate) fn covers(
    what: &str,
    [value, low, high]: [f64; 3],
    before: f64,
    after: f64,
) -> Result<()> {
    println!("{what}: {value:.4e} ({low:.4e} … {high:.4e}), in truth {before:.4e} … {after:.4e}");
    ensure!(
        low <= after && before <= high,
        "{what}: {value} ({low} … {high}), in truth {before} to {after}"
    );
    Ok(())
}

/// The sum of a site's stacks: the value and the widest ends. (A site has one stack in this
/// program.)
pub(crate) fn site(profile: &Value, name: &str, quantity: &str) -> Result<[f64; 3]> {
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

/// Profiles a program for a number of windows, and compares. Returns the profile at 95 %, and the
/// truth.
pub(crate) fn is_right(program: &[&str], share: &str, least: u64) -> Result<(Value, Value)> {
    let mut program = Program::start(program)?;
    let start = program.truth()?;
    let daemon = Daemon::start(&[program.pid()], &["--windows", share])?;
    let attached = program.truth()?;
    after_windows(&daemon, least, NEAR_CERTAIN_CONFIDENCE)?;
    let before = program.truth()?;
    let sure = profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?;
    let after = program.truth()?;
    let usual = profile(&daemon, "0.95")?;
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
    Ok((usual, after))
}

/// Share of a process's CPU time that its windows have cost.
pub(crate) fn share(profile: &Value) -> Result<f64> {
    profile["cost"]["share"]["value"]
        .as_f64()
        .with_context(|| format!("no cost: {}", profile["cost"]))
}
