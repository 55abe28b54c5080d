//! The sampler is ejected from a process while samplerd listens. Blocks that the process held then
//! are no longer reported as held.

use anyhow::{Result, ensure};
use sampler_tests::inject;
use sampler_tests::{Daemon, Workload, wait};

/// Whether the `blind` list of `status`, and the notes of a profile, contain this text.
fn says(daemon: &Daemon, what: &str) -> Result<(bool, bool)> {
    let status = daemon.status()?["blind"].to_string().contains(what);
    let notes = daemon.profile("live", &[])?.json["notes"].to_string().contains(what);
    Ok((status, notes))
}

#[test]
fn blocks_held_at_ejection_are_orphaned() -> Result<()> {
    let mut workload = Workload::start("truth.c", &["5", "1", "81920"])?;
    let pid = workload.pid();
    let daemon = Daemon::start(&[pid], &["--inject", "--interval", "80KiB"])?;
    workload.go()?;
    workload.truth()?;
    let before = daemon.profile("live", &[])?;
    let held = before.totals.inuse_space;
    ensure!(held.value > 0.0 && held.moments.samples > 100, "{}", before.folded());
    ensure!(says(&daemon, "taken out")? == (false, false), "{}", daemon.log());
    // Another samplerd ejects in this way at its end.
    inject::eject(pid)?;
    let after = daemon.profile("live", &[])?;
    ensure!(after.totals.inuse_space.value == 0.0, "still said to be held: {}", after.folded());
    // Allocated bytes stay.
    let allocated = |profile: &sampler_tests::Profile| profile.totals.alloc_space.value;
    ensure!(allocated(&after) >= allocated(&before), "{}", after.folded());
    let notes = after.json["notes"].to_string();
    ensure!(notes.contains("cannot be followed any more"), "{notes}");
    ensure!(notes.contains(" samples, "), "{notes}");
    ensure!(says(&daemon, "has been taken out")? == (true, true), "{notes}");
    ensure!(daemon.outcome("orphaned")? == held.moments.samples, "{}", daemon.status()?);
    // The next sampler begins with nothing held, and the first samplerd goes on with it.
    inject::inject(pid, 80 << 10)?;
    wait::until("the new hooks", || Ok((!says(&daemon, "has been taken out")?.0).then_some(())))?;
    let again = daemon.profile("live", &[])?;
    ensure!(again.totals.inuse_space.moments.samples < held.moments.samples, "{}", again.folded());
    ensure!(again.json["notes"].to_string().contains("cannot be followed"), "{}", again.json);
    workload.exit()?;
    daemon.stop()
}

/// An injected process gets no probes. A process whose sampler was ejected is probed as if it never
/// had a sampler.
#[test]
fn no_allocation_has_two_sources() -> Result<()> {
    for (is_in, source) in [(true, "injected"), (false, "uprobes")] {
        let mut workload = Workload::edge(&["keep", "1000"])?;
        inject::inject(workload.pid(), 1)?;
        if !is_in {
            inject::eject(workload.pid())?;
        }
        let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
        workload.go()?;
        let truth = workload.truth()?.total();
        let profile = daemon.profile("alloc", &[])?;
        let (row, kept) = (profile.row("many_kept"), truth.alloc.bytes as f64);
        ensure!(row.alloc_space.sum == kept, "{source}: {kept}: {}", profile.folded());
        ensure!(row.inuse_space.sum == truth.live.bytes as f64, "{source}: {}", profile.folded());
        let sources = profile.json["sources"][0]["sources"].to_string();
        ensure!(sources == format!("[{source:?}]"), "{sources}: {}", daemon.log());
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}
