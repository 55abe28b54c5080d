//! `--max-overhead`: the samples of a process cost at most a share of the process's CPU time.

use anyhow::{Result, ensure};
use sampler_tests::inject::Subject;
use sampler_tests::{Daemon, wait};

/// CPU time in probes, and CPU time of the process, since the attach. `None` if that time is too
/// short.
fn overhead(daemon: &Daemon) -> Result<Option<(f64, f64)>> {
    let cost = &daemon.json("ps")?["processes"][0]["cost"];
    let value = |of: &str| cost[of]["value"].as_f64();
    let (Some(spent), Some(used)) = (value("spent_ns"), value("processor_ns")) else {
        return Ok(None);
    };
    Ok((used > 4e9).then_some((spent, used)))
}

#[test]
fn samples_stay_within_the_overhead_budget() -> Result<()> {
    // The program allocates all the time. Without a budget it would be sampled far more often at
    // this interval.
    let workload = Subject::start("injected.c", &["1", "busy"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--max-overhead", "1%", "--interval", "4KiB"])?;
    let (spent, used) = wait::until("four seconds of CPU time", || overhead(&daemon))?;
    let share = spent / used;
    println!("{share:.4} of its CPU time");
    ensure!(share <= 0.011, "{spent} of {used} ns: {}", daemon.json("ps")?);
    // The budget is really used.
    ensure!(share >= 0.003, "{spent} of {used} ns: {}", daemon.json("ps")?);
    let profile = daemon.profile("live", &[])?;
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("sampled more rarely"), "{notes}");
    workload.end()?;
    daemon.stop()
}
