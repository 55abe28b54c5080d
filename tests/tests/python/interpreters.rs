//! Several interpreters in one process.

use super::stack::{Blocks, Evaluations, blocks, folded, spawn, times};
use super::{ALL, REPEATS};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::pythons::{self, Python};
use sampler_tests::{Daemon, Workload};
use serde_json::Value;

/// What an interpreter other than the main one has allocated.
struct Other {
    blocks: Blocks,
    /// The blocks of a thread that the interpreter has started.
    of_thread: Blocks,
}

/// What all interpreters have allocated: first the others, then the main one.
fn reported(child: &mut Child) -> Result<(Vec<Other>, Blocks)> {
    let mut others = Vec::new();
    loop {
        let line = child.line()?;
        let json: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let Some(thread) = json["thread"].as_u64() else { return Ok((others, blocks(&line)?)) };
        let size = thread.to_string();
        let of_thread = serde_json::json!({ &size: &json["stacks"][&size] });
        let of_thread = blocks(&of_thread.to_string())?;
        others.push(Other { blocks: blocks(&json["stacks"].to_string())?, of_thread });
    }
}

/// The stacks of all interpreters are right, or they are native and counted. A thread that runs one
/// interpreter only has its frames. From 3.12 on, other threads have the frames of the interpreter
/// that runs.
#[test]
fn stacks_of_several_interpreters_are_right_or_counted() -> Result<()> {
    for python in pythons::known()? {
        let workload = spawn(python.command()?)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        check(&python, daemon, workload).with_context(|| format!("{python:?}"))?;
    }
    Ok(())
}

fn check(python: &Python, daemon: Daemon, mut workload: Workload) -> Result<()> {
    workload.child().send("inside")?;
    let (others, main) = reported(workload.child())?;
    let folded = folded(&daemon)?;
    let mut all = main.clone();
    // Several interpreters may have the same stack.
    for (stack, bytes) in others.iter().flat_map(|other| &other.blocks) {
        *all.entry(stack.clone()).or_default() += bytes;
    }
    let shown = times(&folded, &all, Evaluations::MayStay)?;
    let mut exact: Vec<_> = main.keys().collect();
    let (_, minor) = python.version.split_once('.').context("a version")?;
    match minor.parse::<u32>()? {
        ..12 => exact.extend(others.iter().flat_map(|other| other.of_thread.keys())),
        // 3.12 does not tell which of the interpreters that share a lock runs. The first interpreter
        // has a lock of its own.
        12 => exact.extend(others.iter().take(1).flat_map(|other| other.blocks.keys())),
        _ => exact.extend(others.iter().flat_map(|other| other.blocks.keys())),
    }
    for stack in exact {
        ensure!(shown.get(stack) == Some(&REPEATS), "{:?}: {stack:?}\n{folded}", shown.get(stack));
    }
    let missing: u64 = shown.values().map(|times| REPEATS.saturating_sub(*times)).sum();
    let mut counted = 0;
    for outcome in ["python_unread", "python_unmatched", "python_elsewhere"] {
        counted += daemon.outcome(outcome)?;
    }
    ensure!(missing <= counted, "{missing} stacks are missing, {counted} are counted\n{folded}");
    workload.exit()?;
    daemon.stop()
}
