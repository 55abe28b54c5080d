//! The injector is killed behind every single step: each ptrace request, each write. The program runs on with right results, and the next injector cleans up or goes on.

use anyhow::{Context, Result, ensure};
use sampler_tests::inject::{self, Subject, figure};

/// Two more mappings or fewer are no sign of leftovers: how many pages of code there are depends on the addresses.
const MAPPINGS: usize = 16;

/// In which states the thread is that is borrowed: it waits, or it runs.
const STATES: [&[&str]; 2] = [&["2"], &["1", "busy", "profiled"]];

fn die(verb: &str, program: &mut Subject, step: u64) -> Result<()> {
    let finished = inject::run(verb, program.pid(), &["--die-after", &step.to_string()])?;
    ensure!(finished.code() == -1, "it was not killed: {}", finished.code());
    program.is_well().context("after the injector was killed")
}

/// A whole injection and ejection after that.
fn goes_on(program: &mut Subject) -> Result<()> {
    inject::inject(program.pid(), 64 << 10)?;
    program.is_well().context("after the next injection")?;
    let (mappings, files) = inject::remains(program.pid())?;
    ensure!(files == 0, "{files} memory files are open");
    ensure!(mappings < 2 * MAPPINGS + 16, "{mappings} mappings of images");
    inject::eject(program.pid())?;
    program.is_well().context("after the next ejection")
}

#[test]
fn behind_every_step_of_a_first_injection() -> Result<()> {
    for arguments in STATES {
        let mut program = Subject::start("injected.c", arguments)?;
        let steps = figure(&inject::inject(program.pid(), 64 << 10)?, "steps")?;
        program.is_well()?;
        program.end()?;
        for step in 1..steps {
            let what = || format!("step {step} of {steps}, {arguments:?}");
            let mut program = Subject::start("injected.c", arguments)?;
            die("inject", &mut program, step).with_context(what)?;
            goes_on(&mut program).with_context(what)?;
            program.end().with_context(what)?;
        }
    }
    Ok(())
}

#[test]
fn behind_every_step_of_going_on_and_of_ejection() -> Result<()> {
    for arguments in STATES {
        let mut program = Subject::start("injected.c", arguments)?;
        inject::inject(program.pid(), 64 << 10)?;
        let ejected = figure(&inject::eject(program.pid())?, "steps")?;
        let injected = figure(&inject::inject(program.pid(), 64 << 10)?, "steps")?;
        inject::eject(program.pid())?;
        for step in 1..injected {
            let what = || format!("step {step} of {injected} of an injection, {arguments:?}");
            die("inject", &mut program, step).with_context(what)?;
            goes_on(&mut program).with_context(what)?;
        }
        for step in 1..ejected {
            let what = || format!("step {step} of {ejected} of an ejection, {arguments:?}");
            inject::inject(program.pid(), 64 << 10)?;
            die("eject", &mut program, step).with_context(what)?;
            goes_on(&mut program).with_context(what)?;
        }
        program.end()?;
    }
    Ok(())
}
