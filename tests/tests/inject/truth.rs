//! The profile of an injected program equals what the program did.

use anyhow::{Result, ensure};
use sampler_tests::{Daemon, Workload, inject, preload};
use std::process::Command;

/// Mean bytes between samples: about 8,700 samples in a run.
const INTERVAL: u64 = 80 << 10;
/// Confidence at which a right interval misses once in ten million times.
const CONFIDENCE: &str = "0.9999999";

fn run(seed: u64, allocator: Option<&str>) -> Result<()> {
    let program = sampler_tests::build::compile("truth.c", &[])?;
    let mut command = Command::new(program);
    command.args([seed.to_string(), "1".into(), INTERVAL.to_string()]);
    if let Some(name) = allocator {
        command.env("LD_PRELOAD", preload::debian(name)?);
    }
    let mut workload = Workload::spawn("truth.c", &mut command)?;
    inject::inject(workload.pid(), INTERVAL)?;
    let daemon = Daemon::start(&[workload.pid()], &["--samplers-only", "--ring", "256MiB"])?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &["--confidence", CONFIDENCE])?;
    ensure!(profile.lost_samples == 0, "samples were lost: {}", profile.json["lost"]);
    let (of, total) = (&profile.totals, truth.total());
    for (what, low, high, bytes) in [
        ("allocated", of.alloc_space.low, of.alloc_space.high, total.alloc.bytes),
        ("held", of.inuse_space.low, of.inuse_space.high, total.live.bytes),
    ] {
        let bytes = bytes as f64;
        ensure!((low..=high).contains(&bytes), "{what}: {bytes} is not in {low} … {high}");
    }
    for function in &truth.functions {
        let row = profile.row(&function.name);
        ensure!(row.alloc_space.sum > 0.0, "no stack leads to {}", function.name);
    }
    inject::eject(workload.pid())?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn totals_of_an_injected_program_equal_its_own() -> Result<()> {
    (1..=3).try_for_each(|seed| run(seed, None))
}

#[test]
fn totals_of_other_injected_allocators_equal_their_own() -> Result<()> {
    preload::ALLOCATORS.iter().try_for_each(|allocator| run(4, Some(allocator)))
}

/// After the ejection nothing is sampled any more.
#[test]
fn an_ejected_program_sends_no_samples() -> Result<()> {
    let mut workload = Workload::start("truth.c", &["1", "1", "81920"])?;
    inject::inject(workload.pid(), INTERVAL)?;
    let daemon = Daemon::start(&[workload.pid()], &["--samplers-only"])?;
    inject::eject(workload.pid())?;
    workload.go()?;
    workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    ensure!(profile.totals.alloc_space.value == 0.0, "{}", profile.folded());
    workload.exit()?;
    daemon.stop()
}
