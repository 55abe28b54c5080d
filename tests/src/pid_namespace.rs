//! A pid namespace with a `/proc` of its own, as a container has.

use crate::child::Child;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// A pid namespace. Dropping it ends the namespace with all its processes.
pub struct PidNamespace {
    _unshare: Child,
    /// The namespace's first process, by its number outside.
    init: u32,
}

impl PidNamespace {
    /// Makes a namespace.
    pub fn start() -> Result<PidNamespace> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command.args(["sh", "-c", "echo up; exec sleep infinity"]);
        let mut unshare = Child::start("unshare", &mut command)?;
        ensure!(unshare.line()? == "up", "a namespace must say that it is up");
        let init = child_of(unshare.pid())?;
        Ok(PidNamespace { _unshare: unshare, init })
    }

    /// A command that runs in the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--pid", "--mount"], program)
    }

    /// A command that runs in the namespace, and reads the `/proc` from outside.
    pub fn command_with_our_proc(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--pid"], program)
    }

    fn enter(&self, namespaces: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string()]).args(namespaces).arg("--").arg(program);
        command
    }
}

/// The one child of a process such as `nsenter` or `unshare`, by its number outside.
pub fn child_of(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.trim().parse().with_context(|| format!("one child: {children:?}"))
}

/// The number of a process in its own pid namespace.
pub fn innermost_pid(pid: u32) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = numbers.and_then(|numbers| numbers.split_whitespace().last());
    last.context("no NSpid")?.parse().context("a pid")
}
