//! Processes that the injector refuses: one line gives the reason, and the processes run on as
//! before.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::inject::{self, Subject};
use sampler_tests::nobody::{PublicCopy, as_nobody};
use sampler_tests::{Workload, build, preload, wait};
use std::process::Command;

/// Checks that a refusal is one line with `reason`, and leaves nothing behind.
fn refused(verb: &str, pid: u32, reason: &str) -> Result<()> {
    let finished = inject::run(verb, pid, &[])?;
    let line = String::from_utf8_lossy(&finished.stdout).into_owned();
    let is_refusal = finished.code() == 1 && line.starts_with("refused: ");
    ensure!(is_refusal && line.contains(reason), "{}: {line}{}", finished.code(), finished.stderr);
    ensure!(line.lines().count() == 1, "{line}");
    Ok(())
}

/// Checks the refusals of a program, and that the program goes on to its end.
fn refuses(program: Subject, reason: &str) -> Result<()> {
    for verb in ["preflight", "inject"] {
        refused(verb, program.pid(), reason).with_context(|| format!("{verb}: {reason}"))?;
    }
    let remains = inject::remains(program.pid())?;
    ensure!(remains == (0, 0), "something was left: {remains:?}");
    program.end()
}

#[test]
fn kernel_threads_and_missing_pids_are_refused() -> Result<()> {
    refused("inject", 2, "kernel thread")?;
    refused("inject", 0x3fff_fff0, "no such process")
}

#[test]
fn static_musl_and_32_bit_programs_are_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let silent = directory.path().join("noalloc32");
    let mut compiler = Command::new("cc");
    compiler.args(["-m32", "-static", "-nostdlib", "-o"]).arg(&silent);
    compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/noalloc32.c"));
    finish(&mut compiler)?.success("cc")?;
    let mut child = Child::start("noalloc32.c", &mut Command::new(silent))?;
    refused("inject", child.pid(), "32 bits")?;
    child.close_stdin();
    ensure!(child.wait()?.success(), "noalloc32.c");
    for (flags, reason) in [(["-static"].as_slice(), "static"), (&[build::MUSL], "musl")] {
        let program = build::compile("family.c", flags)?;
        let mut program = Subject::spawn("family.c", &mut Command::new(program))?;
        refused("inject", program.pid(), reason)?;
        ensure!(program.child().ended()?.is_none(), "family.c {flags:?} has ended");
    }
    Ok(())
}

#[test]
fn preloaded_and_sanitized_programs_are_refused() -> Result<()> {
    let mut preloaded = preload::workload("truth.c", &["1", "1", "81920"], 81920)?;
    refused("inject", preloaded.pid(), "has the sampler already")?;
    preloaded.go()?;
    preloaded.truth()?;
    preloaded.exit()?;
    let program = build::compile("injected.c", &["-fsanitize=address"])?;
    let program = Subject::spawn("injected.c", Command::new(program).arg("1"))?;
    refuses(program, "libasan")?;
    refuses(Subject::start("injected.c", &["1", "words"])?, "fs:0x80")
}

#[test]
fn traced_and_stopped_programs_are_refused() -> Result<()> {
    let mut program = Subject::start("injected.c", &["1"])?;
    let pid = program.pid().to_string();
    let mut tracer =
        Child::start("strace", Command::new("strace").args(["-f", "-o", "/dev/null", "-p", &pid]))?;
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok((!status.contains("TracerPid:\t0\n")).then_some(()))
    };
    wait::until("strace", is_traced)?;
    refused("inject", program.pid(), "traces it")?;
    tracer.signal(2)?;
    tracer.wait()?;
    program.child().signal(19)?;
    let is_stopped = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.contains("State:\tT").then_some(()))
    };
    wait::until("a stop", is_stopped)?;
    refused("inject", program.pid(), "is stopped")?;
    program.child().signal(18)?;
    inject::inject(program.pid(), 4096)?;
    program.is_well()?;
    program.end()
}

#[test]
fn programs_with_filtered_system_calls_are_refused() -> Result<()> {
    refuses(Subject::start("injected.c", &["0", "deny"])?, "memfd_create")?;
    let dispatched = Workload::start("dispatched.c", &["before"])?;
    refused("inject", dispatched.pid(), "dispatched")?;
    let mut program = Subject::start("injected.c", &["0", "strict"])?;
    let pid = program.pid();
    let is_strict = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.contains("Seccomp:\t1").then_some(()))
    };
    wait::until("strict mode", is_strict)?;
    refused("inject", pid, "strict")?;
    program.child().send("exit")?;
    ensure!(program.child().wait()?.success(), "strict");
    // A filter that allows all system calls does not matter.
    let mut program = Subject::start("injected.c", &["2", "allow"])?;
    inject::inject(program.pid(), 4096)?;
    program.is_well()?;
    inject::eject(program.pid())?;
    program.end()
}

#[test]
fn programs_with_changed_code_are_refused() -> Result<()> {
    for function in ["malloc", "free"] {
        let mut workload = Workload::start("patched.c", &[function, "near", "before"])?;
        refused("inject", workload.pid(), "changed by another tool")?;
        workload.go()?;
        workload.truth()?;
        workload.exit()?;
    }
    refuses(Subject::start("injected.c", &["1", "moved"])?, "moved its code")
}

#[test]
fn ejection_of_an_uninjected_program_is_refused() -> Result<()> {
    let mut program = Subject::start("injected.c", &["1"])?;
    refused("eject", program.pid(), "nothing of ours")?;
    program.is_well()?;
    program.end()
}

/// An injector without rights changes nothing.
#[test]
fn an_injector_without_privileges_is_refused() -> Result<()> {
    let program = Subject::start("injected.c", &["1"])?;
    let helper = PublicCopy::of("sampler-inject")?;
    let mut command = as_nobody(&helper.program);
    let finished = finish(command.args(["eject", "--pid", &program.pid().to_string()]))?;
    let line = String::from_utf8_lossy(&finished.stdout).into_owned();
    ensure!(finished.code() == 1 && line.contains("no right"), "{line}{}", finished.stderr);
    program.end()
}
