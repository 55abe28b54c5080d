//! Programs into which the sampler is injected while they run.

use crate::child::{Child, Finished, finish};
use crate::{build, preload};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Name of the image's memory file, as the kernel prints it.
const IMAGE: &str = "/memfd:otel_memory-sampler (deleted)";

/// `sampler-inject VERB --pid PID ARGUMENTS`.
pub fn run(verb: &str, pid: u32, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(build::program("sampler-inject")?);
    command.args([verb, "--pid", &pid.to_string()]).args(arguments);
    if verb != "eject" {
        command.arg("--library").arg(preload::library()?);
    }
    finish(&mut command)
}

/// Runs `sampler-inject`, which must succeed, and returns its one line of output.
pub fn done(verb: &str, pid: u32, arguments: &[&str]) -> Result<String> {
    let finished = run(verb, pid, arguments)?;
    let line = String::from_utf8_lossy(&finished.stdout).into_owned();
    ensure!(finished.code() == 0, "{verb} {arguments:?}: {line}{}", finished.stderr);
    Ok(line)
}

/// Injects the sampler.
pub fn inject(pid: u32, interval: u64) -> Result<String> {
    done("inject", pid, &["--interval", &interval.to_string()])
}

/// Ejects the sampler.
pub fn eject(pid: u32) -> Result<String> {
    done("eject", pid, &[])
}

/// A number of a report: `NAME=NUMBER`.
pub fn figure(line: &str, name: &str) -> Result<u64> {
    let words = line.split_ascii_whitespace();
    let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().with_context(|| format!("no {name}: {line}"))?;
    value.parse().with_context(|| format!("{name}: {line}"))
}

/// Counts the mappings of images in a process, and the open memory files of images.
pub fn remains(pid: u32) -> Result<(usize, usize)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("read the mappings")?;
    let mappings = maps.lines().filter(|line| line.ends_with(IMAGE)).count();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).context("list the open files")?;
    let is_image = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == IMAGE)
    };
    Ok((mappings, files.filter_map(Result::ok).filter(is_image).count()))
}

/// A program of `workloads/` that answers each line with a line of JSON.
pub struct Subject {
    child: Child,
}

impl Subject {
    /// Starts a program, and waits until the program is at its mark.
    pub fn start(source: &str, arguments: &[&str]) -> Result<Subject> {
        let program = build::compile(source, &[])?;
        Subject::spawn(source, Command::new(program).args(arguments))
    }

    /// [`Subject::start`] with a command of choice.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Subject> {
        let mut child = Child::start(name, command)?;
        let line = child.line()?;
        ensure!(line == "waiting", "a workload must say that it waits, but said {line:?}");
        Ok(Subject { child })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The child process of the program.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Asks the program for its report.
    pub fn answer(&mut self) -> Result<Value> {
        self.child.send("go")?;
        let line = self.child.line()?;
        serde_json::from_str(&line).with_context(|| format!("parse {line:?}"))
    }

    /// Checks that `injected.c` goes on and reports no error.
    pub fn is_well(&mut self) -> Result<()> {
        let before = self.answer()?;
        let after = crate::wait::until("the program to go on", || {
            let now = self.answer()?;
            Ok((now["blocks"].as_u64() > before["blocks"].as_u64()).then_some(now))
        })?;
        ensure!(after["wrong"] == 0, "something was wrong in the program: {after}");
        Ok(())
    }

    /// Ends the program, and checks that it ended well.
    pub fn end(mut self) -> Result<()> {
        self.child.send("exit")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}
