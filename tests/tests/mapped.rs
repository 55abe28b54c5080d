//! Memory that is mapped without malloc: equal to the programs' own counts, to the byte.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use std::process::Command;

/// Checks the functions whose calls are the program's own.
fn equal(profile: &Profile, truth: &Truth) -> Result<()> {
    for function in &truth.functions {
        let row = profile.row(&function.name);
        let found = [&row.alloc_space, &row.inuse_space].map(|of| of.own as u64);
        let calls = [&row.alloc_objects, &row.inuse_objects].map(|of| of.samples);
        let bytes = [function.alloc.bytes, function.live.bytes];
        let objects = [function.alloc.objects, function.live.objects];
        ensure!(
            (found, calls) == (bytes, objects),
            "{}: {found:?} bytes in {calls:?} calls, in truth {bytes:?} in {objects:?}\n{}",
            function.name,
            profile.folded()
        );
    }
    Ok(())
}

/// Checks that every number is certain.
fn counted(profile: &Profile) -> Result<()> {
    ensure!(profile.json["estimator"] == "exact", "{}", profile.json["estimator"]);
    for stack in &profile.stacks {
        let q = &stack.quantities;
        for of in [q.alloc_space, q.alloc_objects, q.inuse_space, q.inuse_objects] {
            ensure!(of.low == of.value && of.value == of.high, "{of:?}");
        }
    }
    let method = &profile.json["totals"]["inuse_space"]["method"];
    ensure!(method == "exact", "method {method}");
    let sum: f64 = profile.stacks.iter().map(|of| of.quantities.alloc_space.value).sum();
    ensure!(sum == profile.exact_space as f64, "rows sum to {sum}, not {}", profile.exact_space);
    Ok(())
}

fn everything(pids: &[u32], arguments: &[&str], workload: &mut Workload) -> Result<()> {
    let daemon = Daemon::start(pids, arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let pid = workload.pid().to_string();
    let profile = daemon.profile("mapped", &["--pid", &pid])?;
    equal(&profile, &truth).with_context(|| daemon.log())?;
    counted(&profile)?;
    ensure!(profile.row("in_child").stacks == 0, "a child's memory is its own");
    // The thread library maps the threads' stacks for the program.
    let made = profile
        .stacks_of("makes_threads")
        .any(|stack| stack.frames.iter().any(|frame| frame.contains("pthread_create")));
    ensure!(made, "{}", profile.folded());
    // malloc's own mappings are counted apart, and are not in the profile.
    let ps = daemon.json("ps")?;
    let of = ps["processes"].as_array().context("processes")?.iter();
    let of = of.clone().find(|of| of["pid"] == workload.pid()).context("the workload in ps")?;
    let mappings = &of["mappings"];
    let directly = mappings["directly"]["held_bytes"].as_f64();
    ensure!(directly == Some(profile.totals.inuse_space.value), "{mappings}");
    let by_allocators = mappings["by_allocators"]["held_bytes"].as_u64().unwrap_or(0);
    ensure!(by_allocators > 300 << 20, "{mappings}");
    workload.exit()?;
    let ended =
        daemon.profile_where("the end of its mappings", "mapped", &["--pid", &pid], |of| {
            of.totals.inuse_space.value == 0.0
        })?;
    ensure!(ended.exact_space == profile.exact_space, "what was mapped stays known");
    // With all processes of the machine, the calls of others may be too many.
    let lost = daemon.outcome("mapping_ring_full")?;
    ensure!(lost == 0 || pids.is_empty(), "{lost} calls were lost");
    daemon.stop()
}

#[test]
fn every_call_is_counted_under_its_function() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["all"])?;
    everything(&[workload.pid()], &[], &mut workload)
}

#[test]
fn every_call_is_counted_under_its_function_with_all() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["all"])?;
    everything(&[], &["--all"], &mut workload)
}

#[test]
fn an_exec_ends_the_mappings_of_the_old_image() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["exec"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    workload.wait_for_mark()?;
    let before = daemon.profile_where("the end of the old image", "mapped", &[], |profile| {
        let row = profile.row("old_image");
        row.alloc_space.own as u64 == 5 << 20 && row.inuse_space.samples == 0
    })?;
    ensure!(before.row("new_image").stacks == 0, "{}", before.folded());
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("mapped", &[])?;
    let (row, new) = (profile.row("new_image"), truth.function("new_image")?);
    ensure!(row.inuse_space.own as u64 == new.live.bytes, "{}", profile.folded());
    workload.exit()?;
    daemon.stop()
}

#[test]
fn sums_of_a_flood_of_mappings_are_exact() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["flood", "20000"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    let total = workload.truth()?.total();
    let profile = daemon.profile("mapped", &[])?;
    counted(&profile)?;
    let found = [profile.totals.alloc_space.value, profile.totals.inuse_space.value];
    let truth = [total.alloc.bytes, total.live.bytes].map(|bytes| bytes as f64);
    ensure!(found == truth, "{found:?}, in truth {truth:?}\n{}", profile.folded());
    let flooded = daemon.outcome("mapping_flooded")?;
    let known = profile.row("floods").alloc_objects.samples;
    let lost = profile.row("[lost stacks]").alloc_objects.samples;
    ensure!(lost == flooded && known >= 1000 && known + lost == 20000, "{known} {lost} {flooded}");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_window_has_the_mappings_of_its_time() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["all"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    let truth = workload.truth()?;
    let window = daemon.profile("mapped", &["--last", "1h"])?;
    equal(&window, &truth)?;
    // The profile has only large mappings.
    let large = daemon.profile("mapped", &["--min-size", "2MiB"])?;
    ensure!(large.row("shared").inuse_space.own as u64 == 3 << 20, "{}", large.folded());
    ensure!(large.row("pool").stacks == 0, "{}", large.folded());
    // No mapping has been held for an hour.
    let old = daemon.profile("mapped", &["--min-age", "1h"])?;
    ensure!(old.totals.inuse_space.value == 0.0, "{}", old.folded());
    wait::until("a window that is over", || {
        let last = daemon.profile("mapped", &["--last", "100ms"])?;
        Ok((last.exact_space == 0).then_some(()))
    })?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn every_format_prints_mappings_or_says_why_not() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["all"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    workload.truth()?;
    for (format, word) in
        [("text", "by programs themselves"), ("folded", "reserves;"), ("jeprof", "heap_v2")]
    {
        let arguments = ["profile", "--kind", "mapped", "--format", format];
        let printed = daemon.sampler(&arguments)?.success(format)?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        ensure!(text.contains(word), "{format}: {text}");
        if format == "text" {
            ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
    daemon
        .sampler(&["profile", "--kind", "mapped", "--format", "pprof", "-o", "/dev/null"])?
        .success("pprof")?;
    let watched =
        daemon.sampler(&["watch", "--kind", "mapped", "--count", "2", "--period", "100ms"])?;
    watched.success("watch")?;
    let refused = daemon.sampler(&["profile", "--kind", "mapped", "--estimator", "calibrated"])?;
    let error = &refused.stderr;
    ensure!(refused.status.code() == Some(2) && error.contains("is counted"), "{error}");
    let refused = daemon.sampler(&["diff", "--kind", "mapped", "10m..5m", "5m"])?;
    let error = &refused.stderr;
    let offers = "'mapped' for '--kind <KIND>'\n  [possible values: alloc, live, peak]";
    ensure!(refused.status.code() == Some(2) && error.contains(offers), "{error}");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn disabled_mappings_are_reported() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["all"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--no-mappings"])?;
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(blind_spots.contains("--no-mappings"), "{blind_spots}");
    let refused = daemon.sampler(&["profile", "--kind", "mapped"])?;
    let error = &refused.stderr;
    ensure!(refused.status.code() == Some(1) && error.contains("--no-mappings"), "{error}");
    ensure!(error.lines().count() == 1, "{error}");
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()
}

/// Maps arenas of Python's own allocator, and memory that the script maps.
const PYTHON: &str = "
import sys, mmap
print('waiting', flush=True)
sys.stdin.readline()
kept = mmap.mmap(-1, 9 << 20)
objects = [(str(i), [i]) for i in range(200000)]
print('{\"functions\":[]}', flush=True)
sys.stdin.readline()
";

#[test]
fn mappings_of_python_have_whole_stacks() -> Result<()> {
    let mut python = Workload::spawn("python3", Command::new("python3").args(["-c", PYTHON]))?;
    let daemon = Daemon::start(&[python.pid()], &[])?;
    python.go()?;
    python.truth()?;
    let profile = daemon.profile("mapped", &[])?;
    counted(&profile)?;
    let interpreted = profile.row("_PyEval_EvalFrameDefault");
    ensure!(interpreted.inuse_space.own as u64 >= 29 << 20, "{}", profile.folded());
    let whole = profile.stacks.iter().all(|stack| stack.frames[0].contains("_start"));
    ensure!(whole, "every stack reaches its root\n{}", profile.folded());
    let by_script = profile.stacks.iter().any(|stack| {
        let q = &stack.quantities;
        q.inuse_space.value == (9 << 20) as f64 && q.inuse_objects.value == 1.0
    });
    ensure!(by_script, "{}", profile.folded());
    python.exit()?;
    daemon.stop()
}
