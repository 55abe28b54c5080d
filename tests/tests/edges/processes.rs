//! Processes and threads that fork, replace themselves, leave, migrate and end.

use crate::case::{ALL, Case, equals, rows, whole};
use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, wait};

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
    workload.wait_for_mark()?;
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
fn the_profile_of_an_exited_process_is_served() -> Result<()> {
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
fn a_process_outlives_its_main_thread() -> Result<()> {
    rows(&["leader"]).map(|(case, _)| case)?.end_quietly()
}

/// The exclusion does not end with the first thread either. No allocation of the other threads is
/// recorded, not even to be dropped.
#[test]
fn an_excluded_process_is_excluded_to_its_last_thread() -> Result<()> {
    let mut workload = Workload::edge(&["leader"])?;
    let pid = workload.pid();
    let which = format!("pid:{pid}");
    let daemon = Daemon::start(&[], &["--all", "--interval", "256", "--exclude", &which])?;
    workload.go()?;
    workload.truth()?;
    let (status, ps) = (daemon.status()?, daemon.json("ps")?);
    let calls = status["excluded_calls"].as_u64().context("no excluded calls")?;
    ensure!(calls >= 100, "{calls} calls of excluded processes: {status}");
    ensure!(daemon.outcome("excluded")? == 0, "taken, and dropped: {status}");
    let listed = ps["processes"].as_array().context("no processes")?;
    ensure!(listed.iter().all(|process| process["pid"] != pid), "{ps}");
    workload.exit()?;
    daemon.stop()
}

impl Case {
    /// Ends a workload whose leader is a zombie: only the end of the whole process counts.
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
        // 8 standard deviations: the test is about lost samples, not about statistics.
        let off = (totals.alloc_space.value - truth.alloc.bytes as f64).abs();
        let allowed = 8.0 * truth.alloc.of_bytes.variance.sqrt();
        ensure!(off < allowed, "{engine}: off by {off}, allowed {allowed}");
        case.end()?;
    }
    Ok(())
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
