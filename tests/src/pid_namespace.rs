//! A pid namespace with a `/proc` of its own, as a container has.

use crate::child::Child;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// One that ends, with all in it, when this is dropped.
pub struct PidNamespace {
    _unshare: Child,
    /// Its first process, as we know it.
    init: u32,
}

impl PidNamespace {
    /// Makes one.
    pub fn start() -> Result<PidNamespace> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command.args(["sh", "-c", "echo up; exec sleep infinity"]);
        let mut unshare = Child::start("unshare", &mut command)?;
        ensure!(unshare.line()? == "up", "a namespace must say that it is up");
        let init = child_of(unshare.pid())?;
        Ok(PidNamespace { _unshare: unshare, init })
    }

    /// A command that runs in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--pid", "--mount"], program)
    }

    /// A command that runs in it, and sees our `/proc`.
    pub fn command_with_our_proc(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--pid"], program)
    }

    fn enter(&self, namespaces: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string()]).args(namespaces).arg("--").arg(program);
        command
    }
}

/// The one child of a process such as `nsenter` or `unshare`, as we know it.
pub fn child_of(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.trim().parse().with_context(|| format!("one child: {children:?}"))
}

/// A process as it knows itself.
pub fn innermost_pid(pid: u32) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = numbers.and_then(|numbers| numbers.split_whitespace().last());
    last.context("no NSpid")?.parse().context("a pid")
}
