//! Checks that every output format shows the numbers of the same profile.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Profile, Workload};
use std::process::Command;

fn profiled() -> Result<(Workload, Daemon, Profile)> {
    let mut workload = Workload::edge(&["stacks"])?;
    // Every sample has room in the ring, however late the daemon reads it.
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--ring", "64MiB"])?;
    workload.go()?;
    workload.truth()?;
    let profile = daemon.profile("live", &[])?;
    Ok((workload, daemon, profile))
}

#[test]
fn folded_lines_sum_to_the_total() -> Result<()> {
    let (_workload, daemon, profile) = profiled()?;
    let out = daemon.sampler(&["profile", "--kind", "live", "--format", "folded"])?;
    let text = String::from_utf8(out.success("folded")?.stdout)?;
    let mut sum = 0.0;
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').with_context(|| format!("line {line:?}"))?;
        ensure!(stack.contains(";main;"), "no main in {stack:?}");
        sum += value.parse::<f64>().with_context(|| format!("value of {line:?}"))?;
    }
    let total = profile.totals.inuse_space.value;
    ensure!(sum == total, "the lines sum to {sum}, the total is {total}");
    daemon.stop()
}

#[test]
fn text_is_plain_when_piped() -> Result<()> {
    let (_workload, daemon, _profile) = profiled()?;
    let out = daemon.sampler(&["profile", "--kind", "live", "--top", "5"])?.success("text")?;
    let text = String::from_utf8(out.stdout)?;
    ensure!(text.contains("leaf"), "the function is not named: {text}");
    ensure!(!text.contains('\u{1b}'), "escape sequences in a pipe");
    daemon.stop()
}

#[test]
fn top_cuts_stacks_but_not_totals() -> Result<()> {
    let (_workload, daemon, all) = profiled()?;
    let top = daemon.profile("live", &["--top", "7"])?;
    ensure!(top.stacks.len() == 7, "{} stacks", top.stacks.len());
    ensure!(top.totals == all.totals, "totals are of all stacks");
    let sizes: Vec<f64> = top.stacks.iter().map(|s| s.quantities.inuse_space.value).collect();
    ensure!(sizes.is_sorted_by(|a, b| a >= b), "not the largest first: {sizes:?}");
    daemon.stop()
}

#[test]
fn pprof_is_a_gzipped_file() -> Result<()> {
    let (_workload, daemon, _profile) = profiled()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile.pb.gz");
    let path = file.to_str().context("path is not UTF-8")?;
    daemon.sampler(&["profile", "--format", "pprof", "-o", path])?.success("pprof")?;
    let raw = finish(Command::new("gzip").args(["-dc", path]))?.success("gzip")?.stdout;
    let text = String::from_utf8_lossy(&raw);
    for name in ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "leaf"] {
        ensure!(text.contains(name), "no string {name}");
    }
    daemon.stop()
}

/// A query does not change the answer: the whole state is queried twice.
#[test]
fn queries_do_not_change_the_profile() -> Result<()> {
    let (_workload, daemon, first) = profiled()?;
    let second = daemon.profile("live", &[])?;
    ensure!(first.totals == second.totals, "totals differ");
    ensure!(first.stacks.len() == second.stacks.len(), "stacks differ");
    for verb in ["status", "ps"] {
        daemon.sampler(&[verb])?.success(verb)?;
    }
    daemon.stop()
}
