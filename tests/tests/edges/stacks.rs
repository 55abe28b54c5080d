//! Stacks through odd code, stacks that are too deep, and very many stacks.

use crate::case::rows;
use anyhow::{Context, Result, ensure};
use sampler_tests::{Build, Daemon, Workload};

#[test]
fn stacks_go_through_signal_frames() -> Result<()> {
    let (case, profile) = rows(&["signal"])?;
    let stack = profile.stacks_of("alloc_in_handler").next().context("no stack")?;
    for function in ["main", "raises_here", "on_signal"] {
        ensure!(stack.contains(function), "no {function} in {:?}", stack.frames);
    }
    case.end()
}

/// 600 levels of more than 256 bytes exceed the largest snapshot. The profile says so, and counts
/// the calls all the same.
#[test]
fn stacks_deeper_than_the_snapshot_are_marked_truncated() -> Result<()> {
    let (case, profile) = rows(&["deep", "600"])?;
    let stack = profile.stacks_of("deepest").next().context("no stack")?;
    let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
    ensure!(levels > 50, "only {levels} levels of {:?}", stack.frames);
    ensure!(case.daemon.outcome("unwind_truncated")? >= 1, "the stack must be called truncated");
    case.end()
}

/// A stack that fits has every level, to the root.
#[test]
fn stacks_within_the_snapshot_are_whole() -> Result<()> {
    let (case, profile) = rows(&["deep", "60"])?;
    let stack = profile.stacks_of("deepest").next().context("no stack")?;
    let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
    ensure!(levels == 61, "{levels} levels of {:?}", stack.frames);
    ensure!(stack.contains("main"), "no main in {:?}", stack.frames);
    case.end()
}

/// A stack is whole wherever it is in memory: another thread's, the program's own, a part of a
/// thread's.
#[test]
fn stacks_of_every_kind_are_whole() -> Result<()> {
    let (case, profile) = rows(&["kinds"])?;
    let mut roots = Vec::new();
    for stack in profile.stacks_of("deepest") {
        let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
        ensure!(levels == 41, "{levels} levels of {:?}", stack.frames);
        let objects = stack.quantities.alloc_objects.value;
        let root = |function: &&str| stack.contains(function);
        let root = ["on_thread", "on_own_stack"].into_iter().find(root);
        roots.push((root.with_context(|| format!("no root in {:?}", stack.frames))?, objects));
    }
    roots.sort_by_key(|(root, _)| *root);
    let allocations = |of: &str| -> f64 {
        roots.iter().filter(|(root, _)| *root == of).map(|(_, objects)| objects).sum()
    };
    ensure!((allocations("on_thread"), allocations("on_own_stack")) == (1.0, 2.0), "{roots:?}");
    ensure!(case.daemon.outcome("unwind_truncated")? == 0, "no stack is cut");
    case.end()
}

/// 4,096 stacks that differ only in their middle are all distinguished.
#[test]
fn different_stacks_stay_different() -> Result<()> {
    let (case, profile) = rows(&["stacks"])?;
    let mut seen = 0;
    for stack in profile.stacks_of("leaf") {
        let turns = stack.frames.iter().filter(|frame| *frame == "left" || *frame == "right");
        let path = turns.skip(1).fold(0, |path, turn| path * 2 + u64::from(turn == "right"));
        let q = &stack.quantities;
        ensure!(q.alloc_objects.value == 1.0, "two allocations in {:?}", stack.frames);
        ensure!(q.alloc_space.value == (16 + path) as f64, "path {path} of {:?}", stack.frames);
        seen += 1;
    }
    ensure!(seen == 4096, "{seen} stacks");
    case.end()
}

#[test]
fn stacks_by_frame_pointers_are_whole() -> Result<()> {
    let mut workload = Workload::start_as(Build::FramePointers, "edges.c", &["deep", "60"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--unwind", "fp"])?;
    workload.go()?;
    workload.truth()?;
    let profile = daemon.profile("live", &[])?;
    let stack = profile.stacks_of("deepest").next().with_context(|| profile.folded())?;
    let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
    ensure!(levels == 61, "{levels} levels of {:?}", stack.frames);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn stacks_cross_jit_code_without_unwind_information() -> Result<()> {
    let (case, profile) = rows(&["jit"])?;
    let stack = profile.stacks_of("called_by_jit").next().context("no stack")?;
    ensure!(stack.contains("jitted_function"), "no perf map name in {:?}", stack.frames);
    ensure!(stack.contains("main"), "no main in {:?}", stack.frames);
    let map = format!("/tmp/perf-{}.map", case.workload.pid());
    std::fs::remove_file(&map).with_context(|| format!("remove {map}"))?;
    case.end()
}
