//! Stacks of code without unwind tables, and stacks that are cut short.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::kill;
use sampler_tests::{Daemon, Profile, Workload, build, usage};

/// Every allocation is a sample. The workload moves code of its own, which is not probed: samplerd
/// would not profile a static build otherwise.
const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB", "--probe-executables", "all"];

/// Notes at the root of a stack that was cut, and of a stack that may miss frames.
const CUT: &str = "[no unwind information]";
const GUESSED: &str = "[frames may be missing]";

/// A finished case of `stacks.c`.
struct Case {
    workload: Workload,
    daemon: Daemon,
    profile: Profile,
}

impl Case {
    /// Runs the case, and checks that each function has its bytes.
    fn run(flags: &[&str], arguments: &[&str]) -> Result<Case> {
        let program = build::compile("stacks.c", flags)?;
        let mut workload = Workload::start_program(&program, arguments)?;
        let daemon = Daemon::start(&[workload.pid()], ALL)?;
        workload.go()?;
        let truth = workload.truth()?;
        let profile = daemon.profile("alloc", &[])?;
        for of in truth.functions.iter().filter(|of| of.alloc.objects > 0) {
            let row = profile.row(&of.name);
            let is_right = row.alloc_space.sum == of.alloc.bytes as f64;
            ensure!(is_right, "{flags:?} {}: {row:?}\n{}", of.name, profile.folded());
        }
        Ok(Case { workload, daemon, profile })
    }

    /// The frames of a function's stack, root first.
    fn frames(&self, function: &str) -> Result<Vec<String>> {
        let stack = self.profile.stacks_of(function).next();
        Ok(stack.with_context(|| self.profile.folded())?.frames.clone())
    }

    /// Checks that every stack ended with this outcome.
    fn all_ended(&self, outcome: &str) -> Result<()> {
        let [ended, sampled] = [outcome, "sampled"].map(|name| self.daemon.outcome(name));
        let (ended, sampled) = (ended?, sampled?);
        ensure!(ended == sampled, "{ended} of {sampled} are {outcome}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.workload.exit()?;
        self.daemon.stop()
    }
}

#[test]
fn stacks_are_whole_without_a_search_table() -> Result<()> {
    for flags in [
        &["-DUNKNOWN_CIE"][..],
        &["-DUNKNOWN_CIE", "-static"],
        &["-Wl,--no-eh-frame-hdr"],
        &["-static-pie"],
    ] {
        let case = Case::run(flags, &["chain", "10"])?;
        for function in ["by_large", "by_small"] {
            let frames = case.frames(function)?;
            let whole = ["_start", "main", "turn", function, "allocate"];
            let is_whole = whole.iter().all(|of| frames.iter().any(|frame| frame == of));
            ensure!(is_whole, "{flags:?}: {frames:?}");
        }
        case.all_ended("unwind_complete")?;
        case.end()?;
    }
    Ok(())
}

/// A register that happens to be 0 does not mark the root.
#[test]
fn a_stack_that_ends_at_a_zero_is_not_whole() -> Result<()> {
    let case = Case::run(&[], &["zero", "10"])?;
    let frames = case.frames("by_small")?;
    ensure!(frames.first().is_some_and(|root| root == CUT), "{frames:?}");
    ensure!(frames.iter().any(|frame| frame == "with_zero"), "{frames:?}");
    case.all_ended("unwind_failed")?;
    case.end()
}

/// A walk by frame pointers may skip some callers of code without tables. Nothing proves that such
/// a stack is complete.
#[test]
fn a_stack_by_frame_pointers_is_not_proven_whole() -> Result<()> {
    let mut workload = Workload::edge(&["jit"])?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let stack = profile.stacks_of("called_by_jit").next().with_context(|| profile.folded())?;
    let has = |frame| stack.contains(frame);
    ensure!(stack.frames[0] == GUESSED && has("main") && has("jitted_function"), "{stack:?}");
    ensure!(daemon.outcome("unwind_guessed")? == 1, "{}", daemon.status()?["outcomes"]);
    ensure!(profile.json["notes"].to_string().contains("frames may be missing"), "no note");
    std::fs::remove_file(format!("/tmp/perf-{}.map", workload.pid()))?;
    workload.exit()?;
    daemon.stop()
}

/// Code that is unmapped before samplerd reads its samples.
#[test]
fn bytes_of_unmapped_code_are_reported() -> Result<()> {
    let mut workload = Workload::start("generated.c", &["brief"])?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    // The stopped daemon cannot read the code while it exists.
    kill(daemon.pid(), libc::SIGSTOP)?;
    workload.go()?;
    let truth = workload.truth();
    kill(daemon.pid(), libc::SIGCONT)?;
    truth?;
    let profile = daemon.profile("alloc", &[])?;
    ensure!(daemon.outcome("no_mapping")? > 0, "{}", daemon.status()?["outcomes"]);
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("% of bytes have stacks through code that was unmapped"), "{notes}");
    ensure!(profile.row("[unmapped code]").stacks > 0, "{}", profile.folded());
    workload.exit()?;
    daemon.stop()
}

#[test]
fn code_that_moved_to_anonymous_memory_keeps_its_name() -> Result<()> {
    let case = Case::run(&[], &["moved", "10"])?;
    let frames = case.frames("by_moved")?;
    ensure!(frames.iter().any(|frame| frame == "_start"), "{frames:?}");
    case.all_ended("unwind_complete")?;
    case.end()
}

/// An address outside all mappings does not make the daemon read 30,000 mappings again.
#[test]
fn unmapped_addresses_do_not_reread_many_mappings() -> Result<()> {
    let program = build::compile("stacks.c", &[])?;
    let mut workload = Workload::start_program(&program, &["nowhere", "2000"])?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    let before = usage::processor_seconds(daemon.pid())?;
    workload.go()?;
    let objects = workload.truth()?.total().alloc.objects;
    ensure!(daemon.outcome("unwind_failed")? == objects, "{}", daemon.status()?["outcomes"]);
    let used = usage::processor_seconds(daemon.pid())? - before;
    // Reading the mappings takes some 3 ms. A daemon that reads them for each address does so a
    // hundred times a second.
    let each = used / objects as f64;
    eprintln!("{:.3} ms a sample", each * 1e3);
    ensure!(each < 2e-4, "{used} s for {objects} samples");
    workload.exit()?;
    daemon.stop()
}
