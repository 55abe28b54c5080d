//! Stacks as Python itself reports them, and functions that compare them with a profile.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload};
use std::collections::BTreeMap;
use std::process::Command;

/// A stack as Python sees it, oldest frame first: `function (file:line)`.
pub(crate) type Stack = Vec<String>;

/// Bytes of all blocks of one round, by their stack.
pub(crate) type Blocks = BTreeMap<Stack, u64>;

/// Bytes of the smallest block of the workload.
const MIN_BLOCK_BYTES: u64 = 100_000;

/// Maximum number of frames that are read of one stack.
const READ_FRAMES: usize = 128;

/// Replaces the frames that are not read.
const CUT: &str = "[python frames cut]";

/// Starts the workload in an interpreter, which is `command`.
pub(crate) fn spawn(mut command: Command) -> Result<Workload> {
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/frames.py"));
    Workload::spawn("frames.py", &mut command)
}

/// The blocks that the workload reports by their sizes.
pub(crate) fn blocks(line: &str) -> Result<Blocks> {
    let json: BTreeMap<String, Stack> =
        serde_json::from_str(line).with_context(|| format!("parse {line}"))?;
    let mut blocks = Blocks::new();
    for (size, mut stack) in json {
        stack.retain(|frame| !is_unnamed(frame));
        if stack.len() > READ_FRAMES {
            stack.drain(..stack.len() - READ_FRAMES);
            stack.insert(0, CUT.to_owned());
        }
        *blocks.entry(stack).or_default() += size.parse::<u64>()?;
    }
    Ok(blocks)
}

/// Files of code that may be gone when its samples are read.
const UNNAMED: &[&str] = &["(<string>:", "(<script>:"];

fn is_unnamed(frame: &str) -> bool {
    UNNAMED.iter().any(|file| frame.contains(file))
}

/// Python's frames of a folded stack, without their modules, and without those of unnamed files.
pub(crate) fn python(frames: &str) -> Vec<&str> {
    let is_python = |frame: &&str| {
        let position = frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(':'));
        let is_line = position.is_some_and(|(_, line)| line.parse::<u32>().is_ok());
        (is_line && !is_unnamed(frame)) || *frame == CUT
    };
    frames.split(';').filter(is_python).map(without_module).collect()
}

/// The package that the workload calls and that calls it back. Its file is `__init__.py`.
const PACKAGE: &str = "re";

/// `function (file.py:12)` of `module.function (file.py:12)`. The module ends with the file's name,
/// or is the package.
fn without_module(frame: &str) -> &str {
    let file = frame.rsplit_once(" (").and_then(|(_, place)| place.rsplit_once(".py:"));
    let module = file.map(|(name, _)| if name == "__init__" { PACKAGE } else { name });
    let function = module.and_then(|module| frame.split_once(&format!("{module}.")));
    function.map_or(frame, |(_, function)| function)
}

/// The folded profile of everything that was allocated.
pub(crate) fn folded(daemon: &Daemon) -> Result<String> {
    let folded = daemon.sampler(&["profile", "--format", "folded"])?.success("folded")?.stdout;
    Ok(String::from_utf8(folded)?)
}

/// Whether frames of the interpreter's evaluation may stay in stacks with Python frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluations {
    /// Python frames stand for all of them.
    Replaced,
    /// Those of other interpreters stay.
    MayStay,
}

/// How many times the blocks of each stack are shown at that stack.
///
/// # Errors
/// If a frame of the interpreter's evaluation stays that must not, or if blocks are shown at a
/// stack that Python does not report.
pub(crate) fn times(
    folded: &str,
    blocks: &Blocks,
    evaluations: Evaluations,
) -> Result<BTreeMap<Stack, u64>> {
    let mut bytes: BTreeMap<Stack, u64> = blocks.keys().map(|of| (of.clone(), 0)).collect();
    let allocating: Vec<&String> = blocks.keys().filter_map(|stack| stack.last()).collect();
    for line in folded.lines() {
        let (frames, value) = line.rsplit_once(' ').context("a line without a value")?;
        let value: u64 = value.parse()?;
        let stack: Stack = python(frames).into_iter().map(str::to_owned).collect();
        if let Some(bytes) = bytes.get_mut(&stack) {
            let may_be = evaluations == Evaluations::MayStay || !frames.contains("_PyEval_");
            ensure!(may_be, "a frame of the interpreter stays: {line}");
            *bytes += value;
            continue;
        }
        // Frames that stay native stand for Python frames that are missing.
        let is_whole = !frames.contains("_PyEval_");
        let is_block = stack.last().is_some_and(|last| allocating.contains(&last));
        ensure!(
            !(is_whole && is_block && value >= MIN_BLOCK_BYTES),
            "Python reports no such stack: {line}"
        );
    }
    // Division rounds down, because the bytes also contain the block's header and the little else
    // that its line allocates.
    let times = |(stack, bytes): (Stack, u64)| {
        let of = blocks.get(&stack).copied().unwrap_or(1);
        (stack, bytes / of)
    };
    Ok(bytes.into_iter().map(times).collect())
}

/// Checks that all blocks are shown at the stacks that Python reports, each as many times as one of
/// `expected` says.
pub(crate) fn are_those(folded: &str, blocks: &Blocks, expected: &[u64]) -> Result<()> {
    for (stack, times) in times(folded, blocks, Evaluations::Replaced)? {
        ensure!(
            expected.contains(&times),
            "shown {times} times, not {expected:?} times: {stack:?}\n{folded}"
        );
    }
    Ok(())
}

/// Checks that no stack of a thread that holds the interpreter's lock lacks Python frames. New
/// threads allocate before they take the lock.
pub(crate) fn none_is_missing(daemon: &Daemon) -> Result<()> {
    for outcome in ["python_unread", "python_unmatched"] {
        let count = daemon.outcome(outcome)?;
        ensure!(count == 0, "{outcome}: {count}: {}", daemon.status()?);
    }
    Ok(())
}
