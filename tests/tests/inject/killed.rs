//! The injector is killed after every single step: each ptrace request, each write. The program
//! goes on with right results, and the next injector cleans up or continues.

use anyhow::{Context, Result, bail, ensure};
use sampler_tests::inject::{self, Subject};
use std::cell::RefCell;

/// Bound between the mappings of one image, which are fewer, and those of two images, which are
/// more.
const MAX_MAPPINGS: usize = 48;

/// Bounds for the number of steps of an operation. The number depends on addresses and on what has
/// to be emptied.
const MIN_STEPS: u64 = 10;
const MAX_STEPS: u64 = 1000;

/// States of the borrowed thread: it waits, or it runs.
const STATES: [&[&str]; 2] = [&["2"], &["1", "busy", "profiled"]];

/// Whether the injector was killed after this step. Otherwise the injector has finished all steps.
fn dies(verb: &str, program: &mut Subject, step: u64) -> Result<bool> {
    let finished = inject::run(verb, program.pid(), &["--die-after", &step.to_string()])?;
    let line = String::from_utf8_lossy(&finished.stdout).into_owned();
    program.is_well().context("after the injector was killed")?;
    match finished.code() {
        -1 => Ok(true),
        0 if step > MIN_STEPS => Ok(false),
        code => bail!("it ended with {code}: {line}{}", finished.stderr),
    }
}

/// Checks a whole injection and ejection after the kill.
fn goes_on(program: &mut Subject) -> Result<()> {
    inject::inject(program.pid(), 64 << 10)?;
    program.is_well().context("after the next injection")?;
    let (mappings, files) = inject::remains(program.pid())?;
    ensure!(files == 0, "{files} memory files are open");
    ensure!(mappings < MAX_MAPPINGS, "{mappings} mappings of images");
    inject::eject(program.pid())?;
    program.is_well().context("after the next ejection")
}

/// Kills the injector after each step of an operation, until an operation completes.
fn sweep(
    verb: &str,
    arguments: &[&str],
    mut program: impl FnMut() -> Result<Subject>,
    mut after: impl FnMut(Subject) -> Result<()>,
) -> Result<()> {
    for step in 1..MAX_STEPS {
        let mut run = || -> Result<bool> {
            let mut program = program()?;
            let is_killed = dies(verb, &mut program, step)?;
            goes_on(&mut program)?;
            after(program)?;
            Ok(is_killed)
        };
        let is_killed = run().with_context(|| format!("step {step} of {verb}, {arguments:?}"))?;
        if !is_killed {
            return Ok(());
        }
    }
    bail!("{verb} has more than {MAX_STEPS} steps")
}

#[test]
fn a_kill_at_every_step_of_the_first_injection_is_harmless() -> Result<()> {
    STATES.iter().try_for_each(|arguments| {
        let start = || Subject::start("injected.c", arguments);
        sweep("inject", arguments, start, Subject::end)
    })
}

#[test]
fn a_kill_at_every_step_of_reuse_and_ejection_is_harmless() -> Result<()> {
    for arguments in STATES {
        let mut first = Subject::start("injected.c", arguments)?;
        goes_on(&mut first)?;
        let kept = RefCell::new(Some(first));
        let take = || kept.take().context("the program");
        let put_back = |program| {
            kept.replace(Some(program));
            Ok(())
        };
        sweep("inject", arguments, take, put_back)?;
        let injected = || {
            let program = take()?;
            inject::inject(program.pid(), 64 << 10)?;
            Ok(program)
        };
        sweep("eject", arguments, injected, put_back)?;
        take()?.end()?;
    }
    Ok(())
}
