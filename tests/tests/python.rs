//! Checks Python frames: functions, files and lines of a running CPython are those that Python
//! itself reports.

use anyhow::{Context, Result, ensure};
use sampler_tests::pid_namespace::{PidNamespace, child_of, innermost_pid};
use sampler_tests::{Daemon, Workload};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stack as Python sees it, oldest frame first: `function (file:line)`.
type Stack = Vec<String>;

/// Number of allocations of the workload at each of its stacks; at some stacks twice as many.
const REPEATS: u64 = 8;

/// Maximum number of frames that are read of one stack.
const READ_FRAMES: usize = 128;

/// Samples every allocation, in a ring that has room for all samples.
const ALL: &[&str] = &["--interval", "1", "--ring", "512MiB"];

/// Replaces the frames that are not read.
const CUT: &str = "[python frames cut]";

/// All installed interpreters of known versions. At least the distribution's must be there.
fn interpreters() -> Result<Vec<PathBuf>> {
    let folders = std::env::var_os("PATH").context("PATH is not set")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let of = |name: &str| folders.iter().map(|of| of.join(name)).find(|path| is_elf(path));
    let names = ["python3.9", "python3.10", "python3.11", "python3.12", "python3.13"];
    let found: Vec<_> = names.into_iter().filter_map(of).collect();
    ensure!(!found.is_empty(), "no python3.9 to python3.13 in PATH: install python3");
    Ok(found)
}

/// Whether a file is an ELF file: other files are scripts that choose an interpreter.
fn is_elf(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

fn start(python: &Path) -> Result<Workload> {
    spawn(Command::new(python))
}

/// Starts the workload in an interpreter, which is `command`.
fn spawn(mut command: Command) -> Result<Workload> {
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/frames.py"));
    Workload::spawn("frames.py", &mut command)
}

/// The stacks that the workload reports, by the size of their blocks.
fn expected(line: &str) -> Result<BTreeMap<u64, Stack>> {
    let json: BTreeMap<String, Stack> =
        serde_json::from_str(line).with_context(|| format!("parse {line}"))?;
    json.into_iter().map(|(size, stack)| Ok((size.parse()?, stack))).collect()
}

/// The Python frames of a folded stack, in Python's format. The flag says whether the other frames
/// include the interpreter's evaluation.
fn python(frames: &str) -> (Vec<&str>, bool) {
    let is_python = |frame: &&str| frame.contains(".py:") || *frame == CUT;
    let of_python = frames.split(';').filter(is_python).collect();
    (of_python, frames.contains("_PyEval_"))
}

/// Checks that all blocks of each size are at the stack that Python reports.
fn are_those(folded: &str, expected: &BTreeMap<u64, Stack>) -> Result<()> {
    for (size, stack) in expected {
        let mut shown: Vec<&str> = stack.iter().map(String::as_str).collect();
        if shown.len() > READ_FRAMES {
            shown.drain(..stack.len() - READ_FRAMES);
            shown.insert(0, CUT);
        }
        let mut bytes = 0;
        for line in folded.lines() {
            let (frames, value) = line.rsplit_once(' ').context("a line without a value")?;
            let (python, has_evaluation) = python(frames);
            if python == shown {
                ensure!(!has_evaluation, "a frame of the interpreter stays: {line}");
                bytes += value.parse::<u64>()?;
            }
        }
        // Dividing rounds down: a block has a header, and its line allocates little else.
        let times = bytes / size;
        let is_right = times == REPEATS || times == 2 * REPEATS;
        ensure!(
            is_right,
            "{bytes} bytes, not {REPEATS} blocks of {size}, are at {shown:?}\n{folded}"
        );
    }
    Ok(())
}

/// Checks that all stacks of a workload are those that Python reports.
fn check(python: &Path, daemon: Daemon, mut workload: Workload) -> Result<()> {
    workload.go()?;
    let expected = expected(&workload.child().line()?)?;
    let folded = daemon.sampler(&["profile", "--format", "folded"])?.success("folded")?.stdout;
    let folded = String::from_utf8(folded)?;
    let of = || format!("{}: {}", python.display(), daemon.status().unwrap_or_default());
    ensure!(expected.len() >= 10, "{} cases", expected.len());
    are_those(&folded, &expected).with_context(of)?;
    for none in ["python_unread", "python_unmatched", "python_elsewhere"] {
        ensure!(daemon.outcome(none)? == 0, "{none}: {}", of());
    }
    workload.exit()?;
    daemon.stop()?;
    Ok(())
}

#[test]
fn stacks_equal_those_of_python() -> Result<()> {
    for python in interpreters()? {
        let workload = start(&python)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        check(&python, daemon, workload)?;
    }
    Ok(())
}

#[test]
fn stacks_in_a_pid_namespace_equal_those_of_python() -> Result<()> {
    let python = interpreters()?.pop().context("no interpreter")?;
    let namespace = PidNamespace::start()?;
    let command = namespace.command(&python);
    let workload = spawn(command)?;
    let pid = innermost_pid(child_of(workload.pid())?)?;
    let daemon = Daemon::start_inside(&namespace, &[pid], ALL)?;
    check(&python, daemon, workload)
}

/// Code objects are freed, and others take their addresses, before a sample of the freed ones is
/// read. The shown frames are right, or they are native.
#[test]
fn freed_code_objects_are_not_named_by_later_ones() -> Result<()> {
    for python in interpreters()? {
        let mut workload = start(&python)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        workload.child().send("gone")?;
        workload.child().line()?;
        let folded = daemon.sampler(&["profile", "--format", "folded"])?.success("folded")?.stdout;
        let folded = String::from_utf8(folded)?;
        ensure!(daemon.outcome("python_unread")? > 0, "all was read: {}", daemon.status()?);
        for line in folded.lines() {
            let Some((_, rest)) = line.split_once("(gone.py:") else { continue };
            let number = rest.split(')').next().unwrap_or_default().parse::<u64>()?;
            let bytes = line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?;
            let size = 100_000 + 1_000 * number;
            // Compiling allocates as well, but at other stacks.
            ensure!(
                (size..size + 1_000).contains(&bytes),
                "line {number}: {bytes} bytes\n{folded}"
            );
        }
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}
