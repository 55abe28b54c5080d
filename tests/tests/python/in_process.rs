//! Python frames in samples of the in-process sampler.

use super::check;
use super::stack::spawn;
use anyhow::{Context, Result};
use sampler_tests::{Daemon, inject, preload, pythons};

/// Mean bytes between samples. The chance that a block of the workload is not sampled is less than
/// 1 in 10^10. Small blocks are rarely sampled: a process may send 10,000 samples a second.
const INTERVAL: u64 = 4096;

const ARGUMENTS: &[&str] = &["--samplers-only", "--ring", "512MiB"];

#[test]
fn samples_of_the_preloaded_sampler_have_python_frames() -> Result<()> {
    for python in pythons::known()? {
        let mut command = python.command()?;
        preload::preload(&mut command, INTERVAL, None)?;
        let workload = spawn(command)?;
        let daemon = Daemon::start(&[workload.pid()], ARGUMENTS)?;
        check(daemon, workload).with_context(|| format!("{python:?}"))?;
    }
    Ok(())
}

#[test]
fn samples_of_the_injected_sampler_have_python_frames() -> Result<()> {
    for python in pythons::known()? {
        let workload = spawn(python.command()?)?;
        match inject::inject(workload.pid(), INTERVAL) {
            Ok(_) => {}
            // Not every C library of another suite can be injected at every place in memory.
            Err(refused) if python.is_unpacked() => {
                eprintln!("NOTICE: NOT TESTED: {python:?}: {refused:#}");
                continue;
            }
            Err(refused) => return Err(refused),
        }
        let daemon = Daemon::start(&[workload.pid()], ARGUMENTS)?;
        check(daemon, workload).with_context(|| format!("{python:?}"))?;
    }
    Ok(())
}
