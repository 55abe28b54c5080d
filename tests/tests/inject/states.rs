//! States that a process may be in when somebody comes to inject it.

use anyhow::{Context, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::Child;
use sampler_tests::inject::{self, Subject, figure};
use std::process::Command;

#[test]
fn threads_that_compute_and_take_signals() -> Result<()> {
    let mut program = Subject::start("injected.c", &["4", "busy", "profiled"])?;
    for _ in 0..20 {
        inject::inject(program.pid(), 4096)?;
        program.is_well()?;
        inject::eject(program.pid())?;
        program.is_well()?;
    }
    program.end()
}

/// An image that is there is used again: nothing is mapped a second time.
#[test]
fn an_image_is_used_again() -> Result<()> {
    let mut program = Subject::start("injected.c", &["2"])?;
    let first = inject::inject(program.pid(), 4096)?;
    let remains = inject::remains(program.pid())?;
    ensure!(remains.0 > 6 && remains.1 == 0, "{remains:?}");
    // Also where it is in still.
    let again = inject::inject(program.pid(), 4096)?;
    ensure!(figure(&again, "steps")? < figure(&first, "steps")?, "{first}{again}");
    inject::eject(program.pid())?;
    inject::eject(program.pid()).context("a second time")?;
    inject::inject(program.pid(), 4096)?;
    ensure!(inject::remains(program.pid())? == remains, "it has grown");
    program.is_well()?;
    program.end()
}

/// One of several at once does it, and the others say so.
#[test]
fn several_at_once() -> Result<()> {
    let mut program = Subject::start("injected.c", &["2"])?;
    let pid = program.pid().to_string();
    for verb in ["inject", "eject", "inject"] {
        let start = || {
            let mut command = Command::new(build::program("sampler-inject")?);
            command.args([verb, "--pid", &pid]);
            if verb == "inject" {
                command.arg("--library").arg(sampler_tests::preload::library()?);
            }
            Child::start("sampler-inject", &mut command)
        };
        let mut all = (0..4).map(|_| start()).collect::<Result<Vec<Child>>>()?;
        let mut done = 0;
        for child in &mut all {
            let line = child.line()?;
            let is_busy = line.contains("another injector is at it") || line.contains("traces it");
            let code = child.wait()?.code();
            ensure!(code == Some(0) || code == Some(1) && is_busy, "{code:?}: {line}");
            done += usize::from(code == Some(0));
        }
        ensure!(done > 0, "{verb}: nobody did it");
        program.is_well()?;
    }
    inject::eject(program.pid())?;
    program.end()
}
