//! samplerd as `packaging/samplerd.service` runs it: as a user without a name, with few
//! capabilities.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::nobody::PublicCopy;
use sampler_tests::{Daemon, Workload};
use std::path::Path;
use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/samplerd.service");
/// A user that owns nothing.
const USER: &str = "64999";
/// Largest exposure that `systemd-analyze security` may report, from 0 to 10.
const MAX_EXPOSURE: f64 = 3.0;

/// The capabilities of the unit, in setpriv's format.
fn capabilities() -> Result<String> {
    let unit = std::fs::read_to_string(UNIT).context("read the unit")?;
    let setting = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = setting.context("the unit has no CapabilityBoundingSet")?.split(' ');
    let names = names.map(|name| name.trim_start_matches("CAP_").to_lowercase());
    Ok(names.fold("-all".to_owned(), |list, name| list + ",+" + &name))
}

/// The program as the user [`USER`], with these capabilities and no way to gain others.
fn confined(program: &Path, capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"]);
    for set in ["--bounding-set", "--inh-caps", "--ambient-caps"] {
        command.args([set, capabilities]);
    }
    command.arg("--").arg(program);
    command
}

#[test]
fn few_capabilities_are_enough() -> Result<()> {
    let samplerd = PublicCopy::of("samplerd")?;
    for all in [false, true] {
        let mut workload = Workload::edge(&["keep", "1000"])?;
        let pids = if all { Vec::new() } else { vec![workload.pid()] };
        let arguments = [&["--interval", "1"][..], if all { &["--all"] } else { &[] }].concat();
        let command = confined(&samplerd.program, &capabilities()?);
        let daemon = Daemon::start_by(command, &pids, &arguments)?;
        workload.go()?;
        let truth = workload.truth()?.total();
        let pid = workload.pid().to_string();
        let profile = daemon.profile("live", &["--pid", &pid])?;
        let row = profile.row("many_kept");
        let seen = (row.alloc_space.sum, row.inuse_space.sum);
        let expected = (truth.alloc.bytes as f64, truth.live.bytes as f64);
        ensure!(seen == expected, "{seen:?} is not {expected:?}: {}", profile.folded());
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn a_missing_capability_is_named() -> Result<()> {
    let samplerd = PublicCopy::of("samplerd")?;
    let without = capabilities()?.replace(",+sys_ptrace", "");
    let finished = finish(confined(&samplerd.program, &without).args(["--pid", "1"]))?;
    ensure!(finished.code() == 1 && finished.stderr.lines().count() == 1, "{}", finished.stderr);
    ensure!(finished.stderr.contains("no CAP_SYS_PTRACE"), "{}", finished.stderr);
    Ok(())
}

#[test]
fn the_systemd_unit_has_a_low_exposure() -> Result<()> {
    let mut command = Command::new("systemd-analyze");
    let finished = finish(command.args(["security", "--offline=yes", "--no-pager", UNIT]))?;
    let said = String::from_utf8_lossy(&finished.success("systemd-analyze")?.stdout).into_owned();
    let exposure = said.rsplit_once("samplerd.service: ").context("no exposure")?.1;
    let exposure: f64 = exposure.split(' ').next().unwrap_or_default().parse().context("parse")?;
    ensure!(exposure < MAX_EXPOSURE, "{said}");
    Ok(())
}
