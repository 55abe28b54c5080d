//! Other programs that probe or stop the same code.

use crate::case::{ALL, whole};
use anyhow::{Result, ensure};
use sampler_tests::{Daemon, Workload};
use std::process::Command;

/// Two daemons on one process at the same time are both right, and each is right alone.
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

/// Another process has a session link on the same file. The kernel then prepares return probes for
/// every call of our process too: the trampoline is on the stack of nested calls (posix_memalign →
/// malloc).
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
fn breakpoints_at_the_probed_address_do_no_harm() -> Result<()> {
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
