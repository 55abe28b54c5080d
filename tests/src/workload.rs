//! A workload: a small program that reports its true allocations (`workloads/`).

use crate::build;
use crate::child::{Child, kill};
use crate::truth::Truth;
use crate::wait;
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// How a workload is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// As distributions compile programs: no frame pointers.
    Plain,
    /// With frame pointers.
    FramePointers,
}

impl Build {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Build::Plain => &[],
            Build::FramePointers => &["-fno-omit-frame-pointer"],
        }
    }
}

/// A running workload that waits at its *mark*: it has printed `waiting`, and waits for a line on
/// its standard input.
pub struct Workload {
    child: Child,
}

impl Workload {
    /// Compiles and starts `source`. Returns once the workload waits at its mark.
    pub fn start(source: &str, arguments: &[&str]) -> Result<Workload> {
        Workload::start_as(Build::Plain, source, arguments)
    }

    /// [`Workload::start`] with a build of choice.
    pub fn start_as(build: Build, source: &str, arguments: &[&str]) -> Result<Workload> {
        let program = build::compile(source, build.flags())?;
        Workload::spawn(source, Command::new(program).args(arguments))
    }

    /// Starts a case of `edges.c`.
    pub fn edge(case: &[&str]) -> Result<Workload> {
        Workload::start("edges.c", case)
    }

    /// Starts a program from another place, without compiling.
    pub fn start_program(program: &Path, arguments: &[&str]) -> Result<Workload> {
        Workload::spawn(&program.display().to_string(), Command::new(program).args(arguments))
    }

    /// Starts `command`, which finally executes a workload.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Workload> {
        let mut workload = Workload { child: Child::start(name, command)? };
        workload.wait_for_mark()?;
        Ok(workload)
    }

    /// Waits until the workload is at its mark (again, after an execve).
    pub fn wait_for_mark(&mut self) -> Result<()> {
        let line = self.child.line()?;
        ensure!(line == "waiting", "a workload must say that it waits, but said {line:?}");
        Ok(())
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the workload allocate.
    pub fn go(&mut self) -> Result<()> {
        self.child.send("go")
    }

    /// What the workload allocated. The workload waits after its report.
    pub fn truth(&mut self) -> Result<Truth> {
        Truth::parse(&self.child.line()?)
    }

    /// Lets the workload end, and checks that it ended well.
    pub fn exit(&mut self) -> Result<()> {
        self.child.send("exit")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the workload ended with {status}");
        Ok(())
    }

    /// Stops the workload, and waits until none of its threads runs.
    pub fn stop(&self) -> Result<()> {
        kill(self.pid(), 19)?;
        let tasks = format!("/proc/{}/task", self.pid());
        wait::until("the program to stop", || {
            for task in fs::read_dir(&tasks)? {
                let stat = fs::read_to_string(task?.path().join("stat"))?;
                if !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// The child process of the workload, for signals and unusual ends.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end of the workload, and returns how it ended.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait()
    }
}
