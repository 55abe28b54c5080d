//! Programs that are not profiled because probes could harm them. They are listed throughout, and
//! nothing of them is counted.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, Finished, finish};
use sampler_tests::daemon::samplerd;
use sampler_tests::{Daemon, build, inject, wait};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Reason that is given wherever such a program is listed.
const REASON: &str = "a Go program may crash under return probes";

/// A program without a libc, and one that calls malloc.
const PROGRAMS: [&str; 2] = ["pure.go", "mixed.go"];

fn start(source: &str) -> Result<Child> {
    let mut child = Child::start(source, &mut Command::new(build::compile_go(source)?))?;
    let line = child.line()?;
    ensure!(line == "waiting", "{source} said {line:?}");
    Ok(child)
}

/// Lets the program allocate.
fn allocate(child: &mut Child) -> Result<()> {
    child.send("")?;
    let line = child.line()?;
    ensure!(line == "done 1000", "{line:?}");
    Ok(())
}

/// The entry of the process in `ps`.
fn shown(daemon: &Daemon, pid: u32) -> Result<Option<Value>> {
    let list = daemon.json("ps")?;
    let processes = list["processes"].as_array().context("no processes")?;
    Ok(processes.iter().rfind(|of| of["pid"] == pid).cloned())
}

fn says(lines: &Value, words: &str) -> bool {
    let lines = lines.as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.into_iter().any(|line| line.contains(words))
}

/// Waits until `ps` has the process in this state, with the reason and without a number.
fn is_named(daemon: &Daemon, pid: u32, state: &str) -> Result<()> {
    let found = wait::until(&format!("{pid} {state} in ps"), || {
        Ok(shown(daemon, pid)?.filter(|of| of["state"] == state))
    })?;
    ensure!(says(&found["blind"], REASON), "{found}");
    ensure!(found["exact"]["alloc_objects"] == 0, "{found}");
    let pid = pid.to_string();
    let profile = daemon.profile("alloc", &["--pid", &pid])?;
    ensure!(says(&profile.json["notes"], REASON), "{}", profile.json);
    ensure!(profile.exact_objects == 0 && profile.samples == 0, "{}", profile.json);
    let profile = daemon.profile("alloc", &["--top", "1"])?;
    ensure!(says(&profile.json["notes"], REASON), "{}", profile.json["notes"]);
    Ok(())
}

#[test]
fn go_programs_are_named_among_all_processes() -> Result<()> {
    let started = || PROGRAMS.into_iter().map(start).collect::<Result<Vec<Child>>>();
    let mut children = started()?;
    let daemon = Daemon::start(&[], &["--all"])?;
    children.extend(started()?);
    for child in &mut children {
        allocate(child)?;
        is_named(&daemon, child.pid(), "running")?;
    }
    let status = daemon.status()?;
    ensure!(says(&status["blind"], REASON), "{}", status["blind"]);
    // samplerd reads a profiled process once more after its first second.
    wait::pass(Duration::from_millis(2500));
    for child in &mut children {
        is_named(&daemon, child.pid(), "running")?;
        child.send("")?;
        child.wait()?;
    }
    for child in &children {
        is_named(&daemon, child.pid(), "exited")?;
    }
    daemon.stop()
}

/// A Go program is refused before the sampler is put into it.
#[test]
fn go_programs_are_not_injected() -> Result<()> {
    for source in PROGRAMS {
        let mut child = start(source)?;
        let pid = child.pid().to_string();
        let refused = samplerd(&["--listen", "tcp:127.0.0.1:0", "--inject", "--pid", &pid])?;
        let line = &refused.stderr;
        ensure!(refused.code() == 1 && line.contains(REASON), "{source}: {line}");
        let remains = inject::remains(child.pid())?;
        ensure!(remains == (0, 0), "{source}: something was left: {remains:?}");
        allocate(&mut child)?;
        child.send("")?;
        ensure!(child.wait()?.success(), "{source}");
    }
    Ok(())
}

/// A short program, which is gone before samplerd can read it.
#[test]
fn a_short_go_program_is_named_among_all_processes() -> Result<()> {
    let daemon = Daemon::start(&[], &["--all"])?;
    for source in PROGRAMS {
        let mut child =
            Child::start(source, Command::new(build::compile_go(source)?).arg("short"))?;
        ensure!(child.wait()?.success(), "{source}");
        is_named(&daemon, child.pid(), "exited")?;
    }
    daemon.stop()
}

fn run(arguments: &[&str]) -> Result<Finished> {
    build::require_root()?;
    let mut command = Command::new(build::program("sampler")?);
    command.arg("run").args(arguments);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(variable);
    }
    finish(&mut command)
}

/// Words of a message, without its line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_go_program_under_sampler_run_is_named() -> Result<()> {
    for source in PROGRAMS {
        let program = build::compile_go(source)?.display().to_string();
        let by_shell = format!("{program} short; true");
        for command in [&[program.as_str(), "short"][..], &["sh", "-c", &by_shell]] {
            let finished = run(&[&["--"], command].concat())?;
            let said = flat(&finished.stderr);
            ensure!(finished.code() == 0 && said.contains(REASON), "{command:?}: {said}");
        }
        // Nothing of the program is counted, so the output must not say that all is.
        let said = flat(&run(&["--", &program, "short"])?.stderr);
        ensure!(!said.contains("all counted"), "{source}: {said}");
    }
    Ok(())
}

/// A child of a tree, which the tree outlives.
#[test]
fn a_go_child_of_a_tree_is_named() -> Result<()> {
    for source in PROGRAMS {
        let program = build::compile_go(source)?.display().to_string();
        let mut shell =
            Child::start("sh", Command::new("sh").args(["-c", "read go; \"$0\"; true", &program]))?;
        // A sample of the forked shell, before it becomes the program, would be right. At this
        // interval there is none.
        let daemon = Daemon::start(&[shell.pid()], &["--follow", "--interval", "1GiB"])?;
        shell.send("go")?;
        let line = shell.line()?;
        ensure!(line == "waiting", "{line}");
        let children = format!("/proc/{pid}/task/{pid}/children", pid = shell.pid());
        let children = std::fs::read_to_string(children).context("read the children")?;
        let pid = children.trim().parse().with_context(|| format!("one child: {children:?}"))?;
        allocate(&mut shell)?;
        is_named(&daemon, pid, "running")?;
        shell.send("")?;
        is_named(&daemon, pid, "exited")?;
        shell.wait()?;
        daemon.stop()?;
    }
    Ok(())
}

/// A profiled shell becomes such a program. Calls before are counted, and calls after are not.
#[test]
fn a_profiled_process_that_execs_a_go_program_is_named() -> Result<()> {
    let program = build::compile_go(PROGRAMS[1])?.display().to_string();
    for processes in [1, 5] {
        let mut shells = (0..processes)
            .map(|_| {
                let mut shell = Command::new("sh");
                Child::start("sh", shell.args(["-c", "read go; exec \"$0\"", &program]))
            })
            .collect::<Result<Vec<_>>>()?;
        let pids: Vec<u32> = shells.iter().map(Child::pid).collect();
        let daemon = Daemon::start(&pids, &[])?;
        let shell = &mut shells[0];
        shell.send("go")?;
        let line = shell.line()?;
        ensure!(line == "waiting", "{line}");
        allocate(shell)?;
        let pid = shell.pid().to_string();
        let notes = || -> Result<Value> {
            Ok(daemon.profile("alloc", &["--pid", &pid])?.json["notes"].clone())
        };
        wait::until("the reason", || Ok(says(&notes()?, REASON).then_some(())))?;
        for whose in [&["--pid", &pid][..], &[]] {
            let said =
                daemon.sampler(&[&["profile"], whose].concat())?.success("sampler profile")?;
            let said = flat(&String::from_utf8_lossy(&said.stdout));
            ensure!(!said.contains("all counted"), "{processes}: {said}");
        }
        daemon.stop()?;
    }
    Ok(())
}
