//! States that a process may be in at an injection.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish, kill};
use sampler_tests::inject::{self, Subject, figure};
use sampler_tests::{build, wait};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Injects and ejects the sampler twenty times, and checks the program.
fn is_well_in_cycles(mut program: Subject) -> Result<()> {
    for _ in 0..20 {
        inject::inject(program.pid(), 4096)?;
        program.is_well()?;
        inject::eject(program.pid())?;
        program.is_well()?;
    }
    program.end()
}

#[test]
fn injection_cycles_survive_busy_threads_with_signals() -> Result<()> {
    let program = Subject::start("injected.c", &["4", "busy", "profiled"])?;
    is_well_in_cycles(program)
}

/// Threads that begin and end, forked children that allocate under the hooks of their parent, and
/// programs that are spawned.
#[test]
fn injection_cycles_survive_short_threads_and_children() -> Result<()> {
    let program = Subject::start("injected.c", &["2", "churn"])?;
    is_well_in_cycles(program)
}

/// A stopped wait with a timeout goes on by `restart_syscall`, which a filter may forbid.
#[test]
fn waits_survive_a_filter_without_restart_syscall() -> Result<()> {
    is_well_in_cycles(Subject::start("injected.c", &["1", "restart"])?)
}

/// Number of completed operations of one injection and one ejection. A stop prevented the others.
fn done_or_stopped(pid: u32) -> Result<u32> {
    let mut done = 0;
    for verb in ["inject", "eject"] {
        let finished = inject::run(verb, pid, &[])?;
        let line = String::from_utf8_lossy(&finished.stdout).into_owned();
        let is_why = line.contains("stopped") || line.contains("nothing of ours");
        ensure!(finished.code() == 0 || is_why, "{verb}: {line}{}", finished.stderr);
        done += u32::from(finished.code() == 0);
    }
    Ok(done)
}

/// SIGSTOP at any moment: an operation is done, or refused, or fails because of the stop.
/// Afterwards operations succeed.
#[test]
fn injection_survives_sigstop_at_any_moment() -> Result<()> {
    let mut program = Subject::start("injected.c", &["2", "profiled"])?;
    let pid = program.pid();
    let ends = AtomicBool::new(false);
    let done = std::thread::scope(|scope| -> Result<u32> {
        scope.spawn(|| {
            for round in (0..7).cycle() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let _ = kill(pid, 19);
                wait::pass(Duration::from_millis(round));
                let _ = kill(pid, 18);
                wait::pass(Duration::from_millis(3 * round));
            }
        });
        let done = (0..30).map(|_| done_or_stopped(pid)).sum();
        ends.store(true, Ordering::Relaxed);
        done
    })?;
    ensure!(done > 0, "it was never done");
    program.is_well()?;
    inject::inject(pid, 4096)?;
    inject::eject(pid)?;
    program.is_well()?;
    program.end()
}

/// The stack of a coroutine may have other memory close below it.
#[test]
fn memory_below_a_small_stack_stays_as_it_is() -> Result<()> {
    let mut program = Subject::start("coroutine.c", &[])?;
    let pid = program.pid();
    wait::until("a read on the small stack", || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall"))?;
        Ok(call.starts_with("0 0x0 ").then_some(()))
    })?;
    inject::inject(pid, 4096)?;
    program.child().send("end")?;
    let line = program.child().line()?;
    ensure!(line == "0 bytes have changed", "{line}");
    ensure!(program.child().wait()?.success(), "{line}");
    Ok(())
}

/// Address of the libc's function in a process.
fn function_of_libc(pid: u32, name: &str) -> Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let first = maps.lines().find(|line| line.ends_with("/libc.so.6")).context("no libc")?;
    let path = first.split(' ').next_back().context("no path")?;
    let symbols = finish(Command::new("nm").args(["--dynamic", path]))?;
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let is_it = |line: &&str| line.contains(&format!(" T {name}@@"));
    let line = symbols.lines().find(is_it).with_context(|| format!("no {name}"))?;
    let parse = |text: Option<&str>| u64::from_str_radix(text.unwrap_or_default(), 16);
    Ok(parse(first.split('-').next())? + parse(line.split(' ').next())?)
}

/// Under a breakpoint the kernel runs a copy of the file's instruction. So no byte of such an
/// instruction is hooked, also not one behind a prefix. A breakpoint that comes later hides a hook.
#[test]
fn instructions_with_a_breakpoint_are_not_hooked() -> Result<()> {
    let program = Subject::start("injected.c", &["0"])?;
    let pid = program.pid();
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    // The program waits for a line, and calls neither function meanwhile.
    for name in ["malloc", "free"] {
        let address = function_of_libc(pid, name)?;
        let mut byte = [0];
        memory.read_exact_at(&mut byte, address)?;
        memory.write_all_at(&[0xcc], address)?;
        let line = inject::done("preflight", pid, &[])?;
        memory.write_all_at(&byte, address)?;
        let hooked = |line: &str, at: u64| line.contains(&format!("{name}@{at:#x}:"));
        ensure!(!hooked(&line, address) && !hooked(&line, address + 1), "{line}");
        ensure!(line.contains(&format!("{name}@")), "{line}");
        let line = inject::done("preflight", pid, &[])?;
        ensure!(
            hooked(&line, address) || hooked(&line, address + 1),
            "{name} {address:#x}: {line}"
        );
    }
    program.end()
}

/// An existing image is used again: nothing is mapped a second time.
#[test]
fn an_existing_image_is_reused() -> Result<()> {
    let mut program = Subject::start("injected.c", &["2"])?;
    let first = inject::inject(program.pid(), 4096)?;
    let remains = inject::remains(program.pid())?;
    ensure!(remains.0 > 6 && remains.1 == 0, "{remains:?}");
    // An image that is still injected is used again, too.
    let again = inject::inject(program.pid(), 4096)?;
    ensure!(figure(&again, "steps")? < figure(&first, "steps")?, "{first}{again}");
    inject::eject(program.pid())?;
    inject::eject(program.pid()).context("a second time")?;
    inject::inject(program.pid(), 4096)?;
    ensure!(inject::remains(program.pid())? == remains, "it has grown");
    program.is_well()?;
    program.end()
}

/// Only one of several injectors at once injects. The others report that.
#[test]
fn one_of_several_injectors_at_once_injects() -> Result<()> {
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
