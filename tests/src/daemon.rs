//! A daemon of the test's own, on a private socket.

use crate::child::{Child, Finished, finish, kill};
use crate::pid_namespace::{PidNamespace, child_of};
use crate::{Profile, build, wait};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A running `samplerd`.
pub struct Daemon {
    child: Child,
    /// Process id of samplerd: the child's, or that of the child's child.
    process: u32,
    directory: TempDir,
    /// Address of the server, from the daemon's `ready` line.
    pub address: String,
}

impl Daemon {
    /// Starts samplerd on `pids` with further `arguments`. Returns once samplerd is attached and
    /// serves.
    pub fn start(pids: &[u32], arguments: &[&str]) -> Result<Daemon> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let address = format!("unix:{}", directory.path().join("socket").display());
        let command = Command::new(build::program("samplerd")?);
        Daemon::start_in(directory, command, &address, pids, arguments)
    }

    /// [`Daemon::start`] in a pid namespace; `pids` are process ids in that namespace.
    pub fn start_inside(
        namespace: &PidNamespace,
        pids: &[u32],
        arguments: &[&str],
    ) -> Result<Daemon> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let address = format!("unix:{}", directory.path().join("socket").display());
        let command = namespace.command(build::program("samplerd")?);
        let daemon = Daemon::start_in(directory, command, &address, pids, arguments)?;
        Ok(Daemon { process: child_of(daemon.process)?, ..daemon })
    }

    /// [`Daemon::start`] by a command that ends in the program, as another user or with fewer
    /// rights.
    pub fn start_by(command: Command, pids: &[u32], arguments: &[&str]) -> Result<Daemon> {
        let directory = tempfile::tempdir().context("make a directory")?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
        let address = format!("unix:{}", directory.path().join("socket").display());
        Daemon::start_in(directory, command, &address, pids, arguments)
    }

    /// [`Daemon::start`] on an address of choice.
    pub fn start_at(address: &str, pids: &[u32], arguments: &[&str]) -> Result<Daemon> {
        let command = Command::new(build::program("samplerd")?);
        Daemon::start_in(tempfile::tempdir()?, command, address, pids, arguments)
    }

    fn start_in(
        directory: TempDir,
        mut command: Command,
        address: &str,
        pids: &[u32],
        arguments: &[&str],
    ) -> Result<Daemon> {
        build::require_root()?;
        let log = File::create(directory.path().join("log")).context("create the log")?;
        command.args(["--listen", address]).args(arguments).stderr(log);
        // Tests derive the expected precision of an estimate from the requested interval.
        // Only tests of back-pressure may let samplerd raise the interval.
        if !arguments.iter().any(|argument| argument.starts_with("--max-samples-per")) {
            command.args(["--max-samples-per-second", "unlimited"]);
        }
        for pid in pids {
            command.args(["--pid", &pid.to_string()]);
        }
        let mut child = Child::start("samplerd", &mut command)?;
        let line = child.line().with_context(|| {
            fs::read_to_string(directory.path().join("log")).unwrap_or_default()
        })?;
        let address = line.strip_prefix("ready ").map(str::to_string);
        let address = address.with_context(|| format!("expected `ready ADDRESS`: {line:?}"))?;
        Ok(Daemon { process: child.pid(), child, directory, address })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process
    }

    /// Process id of the guardian, which makes and removes samplerd's probes.
    pub fn guardian(&self) -> Result<u32> {
        child_of(self.pid())
    }

    /// The child process that was started.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Path of the daemon's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Runs the client against this daemon.
    pub fn sampler(&self, arguments: &[&str]) -> Result<Finished> {
        sampler(&[&["--connect", &self.address], arguments].concat())
    }

    /// `sampler profile --kind KIND --format json` with `extra` arguments.
    pub fn profile(&self, kind: &str, extra: &[&str]) -> Result<Profile> {
        let arguments = [&["profile", "--kind", kind, "--format", "json"], extra].concat();
        Profile::parse(&self.sampler(&arguments)?.success("sampler profile")?.stdout)
            .with_context(|| format!("the daemon's log: {}", self.log()))
    }

    /// `sampler status --json`.
    pub fn status(&self) -> Result<Value> {
        self.json("status")
    }

    /// `sampler VERB --json`.
    pub fn json(&self, verb: &str) -> Result<Value> {
        let finished = self.sampler(&[verb, "--json"])?.success("sampler")?;
        serde_json::from_slice(&finished.stdout).with_context(|| format!("parse {verb} --json"))
    }

    /// The counter of an outcome in `status`; 0 if the outcome has none.
    pub fn outcome(&self, name: &str) -> Result<u64> {
        Ok(outcome(&self.status()?, name))
    }

    /// Waits until `holds` is true of the profile.
    pub fn profile_where(
        &self,
        what: &str,
        kind: &str,
        extra: &[&str],
        holds: impl Fn(&Profile) -> bool,
    ) -> Result<Profile> {
        let mut last = String::new();
        let found = wait::until(what, || {
            let profile = self.profile(kind, extra)?;
            last = profile.folded();
            Ok(holds(&profile).then_some(profile))
        });
        found.with_context(|| format!("last profile:\n{last}log:\n{}", self.log()))
    }

    /// Sends SIGTERM. samplerd must detach, remove its socket and exit with 0.
    pub fn stop(mut self) -> Result<()> {
        kill(self.process, 15).context("signal samplerd")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "samplerd ended with {status}: {}", self.log());
        ensure!(!self.socket().exists(), "samplerd left its socket behind");
        Ok(())
    }
}

/// Runs the client with these arguments only.
pub fn sampler(arguments: &[&str]) -> Result<Finished> {
    finish(Command::new(build::program("sampler")?).args(arguments))
}

/// Runs the daemon to its end, for command lines that the daemon must refuse.
pub fn samplerd(arguments: &[&str]) -> Result<Finished> {
    finish(Command::new(build::program("samplerd")?).args(arguments))
}

/// The counter of an outcome in a `status --json`, which has `{NAME: n}` or `[{"name", "count"}]`.
pub fn outcome(status: &Value, name: &str) -> u64 {
    let outcomes = &status["outcomes"];
    if let Some(count) = outcomes[name].as_u64() {
        return count;
    }
    let listed = outcomes.as_array().into_iter().flatten();
    listed.filter(|entry| entry["name"] == name).filter_map(|entry| entry["count"].as_u64()).sum()
}
