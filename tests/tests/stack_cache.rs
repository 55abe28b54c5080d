//! The kernel does not copy cached stacks again, and profiles stay the same. Every sample has its
//! own stack, among many stacks that share the call and the stack pointer.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile, Truth, Workload, build, preload, wait};
use std::time::Duration;

/// Room for all samples, however late the daemon reads them.
const EVERYTHING: &[&str] = &["--interval", "1", "--ring", "512MiB"];

/// Time after which the daemon has read the mappings again.
const REREAD: Duration = Duration::from_millis(1500);

/// Longer than the period of the library's limit of samples.
const SECOND: Duration = Duration::from_millis(1500);

/// Checks the profile against the truth. Every call is sampled, so each function's numbers are
/// exact.
fn is_true(profile: &Profile, truth: &Truth) -> Result<()> {
    ensure!(profile.lost_samples == 0, "samples were lost: {}", profile.json["lost"]);
    for function in &truth.functions {
        let row = profile.row(&function.name);
        let (objects, bytes) = (row.alloc_objects.sum, row.alloc_space.sum);
        let alloc = &function.alloc;
        ensure!(
            (objects, bytes) == (alloc.objects as f64, alloc.bytes as f64),
            "{}: {objects} objects, {bytes} bytes are not {alloc:?}\n{}",
            function.name,
            profile.folded()
        );
    }
    Ok(())
}

/// Checks that every stack is one of the workload's combinations of frames.
fn are_whole(profile: &Profile) -> Result<()> {
    for stack in profile.stacks_of("allocate") {
        let has = |name| stack.contains(name);
        let leaves = [has("by_first"), has("by_second"), has("deep"), has("deeper")];
        let callers = [has("near"), has("far"), has("deep"), has("deeper")];
        let roots = [has("main"), has("work")];
        for of in [&leaves[..], &callers, &roots] {
            ensure!(of.iter().filter(|has| **has).count() == 1, "{:?}", stack.frames);
        }
    }
    Ok(())
}

/// Samples so far, and samples whose stack was in the cache.
fn counts(daemon: &Daemon) -> Result<[f64; 2]> {
    let count = |name| Ok::<_, anyhow::Error>(daemon.outcome(name)? as f64);
    let (sampled, known) = (count("sampled")?, count("stack_cache_hit")?);
    // Stacks that were unwound by frame pointers count as guessed: nothing proves them whole.
    let whole = count("unwind_complete")? + count("unwind_guessed")?;
    ensure!(whole == sampled, "{}", daemon.status()?["outcomes"]);
    Ok([sampled, known])
}

/// Runs both rounds with a pause between them. Returns the profile, the truth and the share of
/// stacks of the second round that were in the cache. All stacks of the first round have been read
/// by then, however late samplerd is.
fn rounds(
    workload: &mut Workload,
    daemon: &Daemon,
    pause: Duration,
) -> Result<(Profile, Truth, f64)> {
    workload.go()?;
    workload.wait_for_mark()?;
    // The query makes samplerd read all samples so far.
    daemon.profile("alloc", &[])?;
    let first = counts(daemon)?;
    wait::pass(pause);
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let second = counts(daemon)?;
    let [sampled, known] = [0, 1].map(|i| second[i] - first[i]);
    ensure!(sampled > 100.0, "only {sampled} samples in the second round");
    Ok((profile, truth, known / sampled))
}

fn run(seed: &str, arguments: &[&str]) -> Result<(Profile, Truth, f64)> {
    let mut workload = Workload::start("known.c", &[seed])?;
    let daemon = Daemon::start(&[workload.pid()], &[EVERYTHING, arguments].concat())?;
    let found = rounds(&mut workload, &daemon, Duration::ZERO)?;
    workload.exit()?;
    daemon.stop()?;
    Ok(found)
}

#[test]
fn stacks_that_differ_near_the_root_are_distinct() -> Result<()> {
    for (seed, arguments) in [
        ("1", &[][..]),
        ("2", &["--probe-engine", "multi"]),
        ("3", &["--probe-engine", "perf"]),
        ("4", &["--no-live", "--snapshot", "64KiB"]),
    ] {
        let (profile, truth, known) = run(seed, arguments)?;
        is_true(&profile, &truth).with_context(|| format!("{arguments:?}"))?;
        are_whole(&profile)?;
        ensure!(known > 0.8, "{arguments:?}: {known} of the stacks were known");
    }
    Ok(())
}

#[test]
fn every_stack_is_copied_without_the_cache() -> Result<()> {
    let (profile, truth, known) = run("5", &["--no-stack-cache"])?;
    is_true(&profile, &truth)?;
    ensure!(known == 0.0, "{known} were known");
    let (_, _, known) = run("6", &["--unwind", "fp"])?;
    ensure!(known == 0.0, "{known} were known");
    Ok(())
}

/// The library samples inside the process. Its own call is the leaf, so that all stacks of one
/// depth have the same leaf.
#[test]
fn stacks_below_the_preloaded_library_are_known() -> Result<()> {
    let mut workload = preload::workload("known.c", &["7"], 1)?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    // The library takes a limited number of samples a second.
    let (profile, truth, known) = rounds(&mut workload, &daemon, SECOND)?;
    are_whole(&profile)?;
    let total = truth.total().alloc.objects as f64;
    ensure!(profile.samples > 1000 && profile.samples as f64 <= total, "{}", profile.samples);
    ensure!(known > 0.8, "{known} of the stacks were known");
    workload.exit()?;
    daemon.stop()
}

/// Three rounds of calls. The first may hit cached stacks of another library. The second shows what
/// the stacks really are. The third hits the cache, however late samplerd reads by itself.
fn calls_of_a_library(workload: &mut Workload, daemon: &Daemon) -> Result<Profile> {
    let mut some = || {
        workload.go()?;
        workload.wait_for_mark()?;
        daemon.profile("alloc", &[])
    };
    some()?;
    some()?;
    some()
}

/// Another library's code replaces the code at an address, with frames of the same sizes. Only the
/// time differs.
#[test]
fn code_that_replaces_other_code_misses_the_cache() -> Result<()> {
    let plugin = |name| build::compile("plugin.c", &["-shared", "-fPIC", name]);
    let plugins = [plugin("-DNAME=plugin_one")?, plugin("-DNAME=plugin_two")?];
    let paths = plugins.each_ref().map(|path| path.to_str().unwrap_or_default());
    let mut workload = Workload::start("swapped.c", &paths)?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    let calls = |profile: &Profile| {
        ["plugin_one", "plugin_two"].map(|name| profile.row(name).alloc_objects.sum as u64)
    };
    let profile = calls_of_a_library(&mut workload, &daemon)?;
    ensure!(calls(&profile) == [5000, 0], "{}", profile.folded());
    let known = daemon.outcome("stack_cache_hit")?;
    ensure!(known > 4500, "{known} of the stacks were known");
    // The other library replaces the first.
    workload.go()?;
    workload.wait_for_mark()?;
    // The daemon reads the mappings once a second. Until then every sample is attributed to the old
    // library.
    wait::pass(REREAD);
    let profile = calls_of_a_library(&mut workload, &daemon)?;
    ensure!(calls(&profile) == [5000, 5000], "{}", profile.folded());
    let after = daemon.outcome("stack_cache_hit")?;
    ensure!(after > known + 4500, "{after} of the stacks were known, after {known}");
    workload.exit()?;
    daemon.stop()
}
