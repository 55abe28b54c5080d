//! Odd calls, processes, threads and stacks, with every allocation sampled: at interval 1 each weight
//! is exactly 1, so the profile must equal the truth.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::Row;
use sampler_tests::{Build, Daemon, Profile, Truth, Workload, build, wait};
use std::process::Command;

/// Every allocation is sampled.
const ALL: &[&str] = &["--interval", "1"];

/// A finished case, still attached.
struct Case {
    workload: Workload,
    daemon: Daemon,
    truth: Truth,
}

impl Case {
    fn run(case: &[&str]) -> Result<Case> {
        Case::run_with(case, ALL)
    }

    fn run_with(case: &[&str], arguments: &[&str]) -> Result<Case> {
        let mut workload = Workload::edge(case)?;
        let daemon = Daemon::start(&[workload.pid()], arguments)?;
        workload.go()?;
        let truth = workload.truth()?;
        Ok(Case { workload, daemon, truth })
    }

    /// Kind alloc: kind live leaves out the stacks of which nothing is held.
    fn profile(&self) -> Result<Profile> {
        self.daemon.profile("alloc", &[])
    }

    /// Each function's row equals the truth.
    fn rows(&self, profile: &Profile) -> Result<()> {
        for function in &self.truth.functions {
            let row = profile.row(&function.name);
            equals(&function.name, &row, &function.alloc, &function.live)
                .with_context(|| profile.folded())?;
        }
        Ok(())
    }

    /// Nothing else was allocated: totals and exact totals equal the truth too.
    fn totals(&self, profile: &Profile) -> Result<()> {
        let total = self.truth.total();
        let exact = (profile.exact_objects, profile.exact_space);
        let truth = (total.alloc.objects, total.alloc.bytes);
        ensure!(exact == truth, "exact {exact:?} is not {truth:?}\n{}", profile.folded());
        let totals = &profile.totals;
        let row = Row {
            stacks: 0,
            alloc_space: totals.alloc_space.moments,
            alloc_objects: totals.alloc_objects.moments,
            inuse_space: totals.inuse_space.moments,
            inuse_objects: totals.inuse_objects.moments,
        };
        equals("total", &row, &total.alloc, &total.live).with_context(|| profile.folded())
    }

    fn end(mut self) -> Result<()> {
        self.workload.exit()?;
        self.daemon.stop()
    }
}

type Sums = sampler_tests::truth::Sums;

fn equals(name: &str, row: &Row, alloc: &Sums, live: &Sums) -> Result<()> {
    for (what, ours, truth) in [
        ("alloc bytes", row.alloc_space.sum, alloc.bytes),
        ("alloc objects", row.alloc_objects.sum, alloc.objects),
        ("live bytes", row.inuse_space.sum, live.bytes),
        ("live objects", row.inuse_objects.sum, live.objects),
    ] {
        ensure!(ours == truth as f64, "{name}: {what} {ours} is not {truth}");
    }
    Ok(())
}

/// A case in which nothing is allocated but what the truth counts.
fn whole(case: &[&str]) -> Result<()> {
    let case = Case::run(case)?;
    let profile = case.profile()?;
    case.rows(&profile)?;
    case.totals(&profile)?;
    case.end()
}

/// A case in which libc allocates for itself as well.
fn rows(case: &[&str]) -> Result<(Case, Profile)> {
    let case = Case::run(case)?;
    let profile = case.profile()?;
    case.rows(&profile)?;
    Ok((case, profile))
}

#[test]
fn realloc_in_every_way() -> Result<()> {
    whole(&["realloc"])
}

#[test]
fn aligned_in_every_way() -> Result<()> {
    whole(&["aligned"])
}

#[test]
fn calls_that_allocate_nothing() -> Result<()> {
    whole(&["odd"])
}

#[test]
fn failed_calls_are_counted_as_outcomes() -> Result<()> {
    let case = Case::run(&["odd"])?;
    let status = case.daemon.status()?;
    let failed = sampler_tests::daemon::outcome(&status, "failed")
        + sampler_tests::daemon::outcome(&status, "refused");
    ensure!(failed >= 12, "2 callocs and 10 mallocs failed: {}", status["outcomes"]);
    case.end()
}

#[test]
fn fork_child_frees_its_own_copy() -> Result<()> {
    whole(&["fork"])
}

#[test]
fn vfork_child_ends_without_ending_its_parent() -> Result<()> {
    whole(&["vfork"])
}

#[test]
fn exec_ends_the_old_blocks_and_the_new_image_is_probed() -> Result<()> {
    let mut workload = Workload::edge(&["exec"])?;
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    workload.at_mark()?;
    let before =
        daemon.profile_where("the end of the old image's blocks", "alloc", &[], |profile| {
            let row = profile.row("old_image");
            row.alloc_space.sum == 40000.0 && row.inuse_space.samples == 0
        })?;
    ensure!(before.row("new_image").alloc_space.samples == 0, "{}", before.folded());
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let new = truth.function("new_image")?;
    equals("new_image", &profile.row("new_image"), &new.alloc, &new.live)
        .with_context(|| profile.folded())?;
    ensure!(profile.row("old_image").inuse_space.samples == 0, "{}", profile.folded());
    ensure!(profile.exact_space >= 70000, "exact is since attach: {}", profile.exact_space);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn after_exit_the_profile_is_still_served() -> Result<()> {
    let (mut case, before) = rows(&["keep", "500"])?;
    ensure!(before.row("many_kept").inuse_objects.sum == 500.0, "{}", before.folded());
    let pid = case.workload.pid().to_string();
    case.workload.exit()?;
    let after = case.daemon.profile_where("the end of its blocks", "alloc", &[], |profile| {
        profile.totals.inuse_space.moments.samples == 0
    })?;
    let row = after.row("many_kept");
    ensure!(row.alloc_space.sum == 32000.0, "allocations stay known\n{}", after.folded());
    ensure!(after.exact_objects == before.exact_objects, "exact totals stay");
    let one = case.daemon.profile("alloc", &["--pid", &pid])?;
    ensure!(one.exact_objects == before.exact_objects, "by pid as well");
    let ps = case.daemon.json("ps")?.to_string();
    ensure!(ps.contains("exited"), "ps says that it exited: {ps}");
    case.daemon.stop()
}

#[test]
fn a_main_thread_that_leaves_is_no_exit() -> Result<()> {
    rows(&["leader"]).map(|(case, _)| case)?.end_quietly()
}

impl Case {
    /// The leader is a zombie: only the end of the whole process counts.
    fn end_quietly(self) -> Result<()> {
        let Case { mut workload, daemon, .. } = self;
        workload.exit()?;
        daemon.stop()
    }
}

/// Preemption and migration in the middle of calls: not a byte is lost.
#[test]
fn storms_of_migrating_threads_count_to_the_byte() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        let arguments = ["--interval", "64KiB", "--probe-engine", engine];
        let case = Case::run_with(&["storm", "65536"], &arguments)?;
        let profile = case.profile()?;
        let truth = case.truth.total();
        let exact = (profile.exact_objects, profile.exact_space);
        let expected = (truth.alloc.objects, truth.alloc.bytes);
        ensure!(exact == expected, "{engine}: exact {exact:?} is not {expected:?}");
        let totals = &profile.totals;
        ensure!(totals.inuse_space.moments.samples == 0, "{engine}: all was freed");
        // 8 standard deviations: this is about losing samples, not about statistics.
        let off = (totals.alloc_space.value - truth.alloc.bytes as f64).abs();
        let allowed = 8.0 * truth.alloc.of_bytes.variance.sqrt();
        ensure!(off < allowed, "{engine}: off by {off}, allowed {allowed}");
        case.end()?;
    }
    Ok(())
}

#[test]
fn stacks_go_through_signal_frames() -> Result<()> {
    let (case, profile) = rows(&["signal"])?;
    let stack = profile.stacks_of("alloc_in_handler").next().context("no stack")?;
    for function in ["main", "raises_here", "on_signal"] {
        ensure!(stack.contains(function), "no {function} in {:?}", stack.frames);
    }
    case.end()
}

/// 600 levels of more than 256 bytes: beyond the largest snapshot, said so, and counted all the same.
#[test]
fn stacks_deeper_than_the_snapshot_say_so() -> Result<()> {
    let (case, profile) = rows(&["deep", "600"])?;
    let stack = profile.stacks_of("deepest").next().context("no stack")?;
    let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
    ensure!(levels > 50, "only {levels} levels of {:?}", stack.frames);
    ensure!(case.daemon.outcome("unwind_truncated")? >= 1, "the stack must be called truncated");
    case.end()
}

/// The whole of a stack that fits: every level, to the root.
#[test]
fn stacks_that_fit_are_whole() -> Result<()> {
    let (case, profile) = rows(&["deep", "60"])?;
    let stack = profile.stacks_of("deepest").next().context("no stack")?;
    let levels = stack.frames.iter().filter(|frame| *frame == "descend").count();
    ensure!(levels == 61, "{levels} levels of {:?}", stack.frames);
    ensure!(stack.contains("main"), "no main in {:?}", stack.frames);
    case.end()
}

/// 4,096 stacks that differ only in their middle: none is taken for another.
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
fn a_library_loaded_later_is_named() -> Result<()> {
    let library = build::compile("library.c", &["-shared", "-fPIC"])?;
    let library = library.to_str().context("path is not UTF-8")?;
    rows(&["dlopen", library]).map(|(case, _)| case)?.end()
}

#[test]
fn code_without_unwind_information_in_the_middle() -> Result<()> {
    let (case, profile) = rows(&["jit"])?;
    let stack = profile.stacks_of("called_by_jit").next().context("no stack")?;
    ensure!(stack.contains("jitted_function"), "no perf map name in {:?}", stack.frames);
    ensure!(stack.contains("main"), "no main in {:?}", stack.frames);
    let map = format!("/tmp/perf-{}.map", case.workload.pid());
    std::fs::remove_file(&map).with_context(|| format!("remove {map}"))?;
    case.end()
}

/// Copies the workload to `directory` and starts it there.
fn copied(directory: &std::path::Path) -> Result<(Workload, std::path::PathBuf)> {
    let program = directory.join("moved");
    std::fs::copy(build::compile("edges.c", &[])?, &program).context("copy the workload")?;
    Ok((Workload::start_program(&program, &["keep", "10"])?, program))
}

fn names_its_functions(mut workload: Workload) -> Result<()> {
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("live", &[])?;
    let function = truth.function("many_kept")?;
    equals("many_kept", &profile.row("many_kept"), &function.alloc, &function.live)
        .with_context(|| profile.folded())?;
    let stack = profile.stacks_of("many_kept").next().context("no stack")?;
    ensure!(stack.contains("main"), "{:?}", stack.frames);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_deleted_program_keeps_its_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (workload, program) = copied(directory.path())?;
    std::fs::remove_file(program)?;
    names_its_functions(workload)
}

/// Another program under the same path must not lend its names.
#[test]
fn a_replaced_program_keeps_its_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (workload, program) = copied(directory.path())?;
    std::fs::remove_file(&program)?;
    std::fs::copy(build::compile("truth.c", &[])?, &program)?;
    names_its_functions(workload)
}

/// A program that exists only in its own mount namespace.
#[test]
fn another_mount_namespace() -> Result<()> {
    let program = build::compile("edges.c", &[])?;
    let directory = tempfile::tempdir()?;
    let script = format!(
        "mount -t tmpfs none {dir} && cp {program} {dir}/inside && exec {dir}/inside keep 10",
        dir = directory.path().display(),
        program = program.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    names_its_functions(Workload::spawn("a namespace", &mut command)?)
}

/// A new process with an old pid is another process.
#[test]
fn a_reused_pid_is_another_process() -> Result<()> {
    let (mut case, before) = rows(&["keep", "10"])?;
    let pid = case.workload.pid();
    case.workload.exit()?;
    case.daemon.profile_where("its end", "alloc", &[], |profile| {
        profile.totals.inuse_space.moments.samples == 0
    })?;
    let mut second = wait::until("the same pid once more", || {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())
            .context("choose the next pid")?;
        let workload = Workload::edge(&["keep", "77"])?;
        Ok((workload.pid() == pid).then_some(workload))
    })?;
    second.go()?;
    second.truth()?;
    let after = case.daemon.profile("alloc", &[])?;
    ensure!(after.exact_objects == before.exact_objects, "counted: {}", after.folded());
    ensure!(after.totals.inuse_objects.value == 0.0, "held: {}", after.folded());
    second.exit()?;
    case.daemon.stop()
}

/// Two daemons on one process at once: both right, each of them alone.
#[test]
fn two_daemons_do_not_disturb_each_other() -> Result<()> {
    let mut workload = Workload::edge(&["realloc"])?;
    let first = Daemon::start(&[workload.pid()], ALL)?;
    let second = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    let truth = workload.truth()?.total();
    for daemon in [&first, &second] {
        let profile = daemon.profile("live", &[])?;
        ensure!(profile.exact_space == truth.alloc.bytes, "exact {}", profile.exact_space);
        let live = profile.totals.inuse_space.value;
        ensure!(live == truth.live.bytes as f64, "{}", profile.folded());
    }
    first.stop()?;
    second.profile("live", &[])?;
    workload.exit()?;
    second.stop()
}

/// A session link of another process on the same file makes the kernel prepare return probes for every
/// call of ours too: the trampoline stands on the stack of nested calls (posix_memalign → malloc).
#[test]
fn another_daemon_elsewhere_does_not_cut_stacks() -> Result<()> {
    let other = Workload::edge(&["odd"])?;
    let elsewhere = Daemon::start(&[other.pid()], ALL)?;
    whole(&["aligned"])?;
    whole(&["realloc"])?;
    elsewhere.stop()
}

/// A debugger's breakpoint on malloc, set before or after our probe, and removed again.
#[test]
fn a_debugger_at_the_same_address() -> Result<()> {
    for attach_first in [true, false] {
        let mut workload = Workload::edge(&["realloc"])?;
        let pid = workload.pid().to_string();
        let early = attach_first.then(|| Daemon::start(&[workload.pid()], ALL)).transpose()?;
        let mut gdb = Command::new("gdb");
        gdb.args(["-q", "-batch", "-nx", "-p", &pid]);
        for line in ["break *malloc", "break *free", "detach"] {
            gdb.args(["-ex", line]);
        }
        sampler_tests::child::finish(&mut gdb)?.success("gdb")?;
        let daemon = match early {
            Some(daemon) => daemon,
            None => Daemon::start(&[workload.pid()], ALL)?,
        };
        workload.go()?;
        let truth = workload.truth()?.total();
        let profile = daemon.profile("live", &[])?;
        ensure!(profile.exact_space == truth.alloc.bytes, "exact {}", profile.exact_space);
        let live = profile.totals.inuse_space.value;
        ensure!(live == truth.live.bytes as f64, "{}", profile.folded());
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}
