//! A Debian with systemd, made for the test: this machine's release in its own namespaces.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::{Child, Finished, finish, finish_within, kill};
use sampler_tests::pid_namespace::child_of;
use sampler_tests::{debian, wait};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/package/boot.sh");
/// Maximum time for fetching and unpacking Debian's packages.
const MAKE: Duration = Duration::from_secs(600);

/// A running Debian. Dropping it ends its processes.
pub(crate) struct Debian {
    _init: Child,
    /// The pid of Debian's systemd in the test's namespace.
    pid: u32,
    _cgroup: Cgroup,
    root: TempDir,
}

/// A control group, removed when its processes have ended.
struct Cgroup(PathBuf);

impl Debian {
    /// Makes a Debian and waits until it has booted.
    pub(crate) fn boot() -> Result<Debian> {
        let root = tempfile::tempdir().context("make a directory")?;
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", "--include=systemd-sysv", &debian::release()?]);
        finish_within(make.arg(root.path()), MAKE)?.success("mmdebstrap")?;
        let name = format!("sampler-package-{}", std::process::id());
        let cgroup = Cgroup(unified_hierarchy()?.join(name));
        let mut boot = Command::new("sh");
        let init = Child::start("boot.sh", boot.arg(BOOT).arg(root.path()).arg(&cgroup.0))?;
        // The script has other children as well, which run its commands.
        let pid = wait::until("systemd", || {
            let child = child_of(init.pid()).ok();
            Ok(child.filter(|pid| is_systemd(*pid)))
        })?;
        let debian = Debian { _init: init, pid, _cgroup: cgroup, root };
        wait::until("the end of the boot", || {
            let state = debian.run(&["systemctl", "is-system-running"])?;
            Ok((state.stdout == b"running\n").then_some(()))
        })?;
        Ok(debian)
    }

    /// A command that runs in this Debian, as root.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string()]);
        command.args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd=/", "--"]);
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]);
        command.arg(program);
        command
    }

    /// Runs a command in this Debian to its end, with any exit status.
    pub(crate) fn run(&self, words: &[&str]) -> Result<Finished> {
        let (program, arguments) = words.split_first().context("no command")?;
        finish(self.command(program).args(arguments))
    }

    /// The output of a command in this Debian, which must exit with 0.
    pub(crate) fn output(&self, words: &[&str]) -> Result<String> {
        let finished = self.run(words)?;
        let said = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
        ensure!(finished.status.success(), "{words:?}: {said}{}", finished.stderr);
        Ok(said)
    }

    /// Copies a file into this Debian. Returns the file's path there.
    pub(crate) fn copy(&self, file: &Path) -> Result<String> {
        let name = file.file_name().and_then(|name| name.to_str()).context("a file's name")?;
        let inside = format!("/root/{name}");
        let target = self.path(&inside);
        fs::copy(file, &target).with_context(|| format!("copy to {}", target.display()))?;
        Ok(inside)
    }

    /// The test's path for a path `inside` this Debian. It does not show other file systems that
    /// are mounted there.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.root.path().join(inside.trim_start_matches('/'))
    }

    /// All files except logs and the files that the test copies into this Debian.
    pub(crate) fn files(&self) -> Result<BTreeSet<String>> {
        let mut find = vec!["find", "/", "-xdev"];
        let left_out = ["/root", "/var/log"];
        find.extend(left_out.iter().flat_map(|path| ["-path", path, "-prune", "-o"]));
        find.push("-print");
        Ok(self.output(&find)?.lines().map(str::to_owned).collect())
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // The control group and the files can be removed once all processes of this Debian have
        // ended. Errors mean that the processes have ended.
        let _ = kill(self.pid, libc::SIGKILL);
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let _ = wait::until("its end", || Ok((!process.exists()).then_some(())));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Removes the innermost groups first. Errors leave empty groups, which cost nothing.
        let mut find = Command::new("find");
        find.arg(&self.0).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
        let _ = finish(&mut find);
    }
}

fn is_systemd(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "systemd\n")
}

/// The mount point of version 2 of control groups.
fn unified_hierarchy() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").context("read /proc/mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2"));
    Ok(PathBuf::from(mount.context("no cgroup2 is mounted")?[1]))
}
