//! A thread that waits in a system call does not notice a stop.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::inject::{self, Subject};
use sampler_tests::wait;
use std::process::Command;

/// Number of rounds. Each round stops all threads twice.
const ROUNDS: u32 = 50;

#[test]
fn eight_blocking_calls_get_no_eintr_by_injection() -> Result<()> {
    let mut program = Subject::start("waits.c", &[])?;
    for round in 0..ROUNDS {
        inject::inject(program.pid(), 512 << 10).with_context(|| format!("round {round}"))?;
        inject::eject(program.pid()).with_context(|| format!("round {round}"))?;
    }
    let answer = program.answer()?;
    let counts = answer.as_object().context("counts")?;
    ensure!(counts.len() == 8, "{answer}");
    ensure!(counts.values().all(|count| *count == 0), "{answer}");
    program.end()
}

/// The program counts the interruptions by a debugger. Otherwise the test above would show nothing.
#[test]
fn a_debugger_causes_eintr() -> Result<()> {
    let mut program = Subject::start("waits.c", &[])?;
    let pid = program.pid().to_string();
    let mut gdb = Command::new("gdb");
    gdb.args(["-p", &pid, "-batch", "-ex", "detach"]);
    // A thread may be stopped before it has a CPU. Such a thread does not wait yet.
    wait::until("EINTR in each", || {
        finish(&mut gdb)?.success("gdb")?;
        let answer = program.answer()?;
        let kinds = ["epoll_wait", "semtimedop", "recv", "sigtimedwait"];
        Ok(kinds.iter().all(|kind| answer[kind].as_u64() > Some(0)).then_some(()))
    })?;
    program.end()
}
