//! Distribution packages: installed with apt where that is possible, named otherwise.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{step, workspace};

/// Whether this process may install packages and load eBPF programs.
pub(crate) fn is_root() -> bool {
    // The owner of /proc/self is the effective user; no system call of our own needed.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether packages can be installed from here: Debian or a child of it, as root.
pub(crate) fn can_install() -> bool {
    is_root() && workspace::in_path("apt-get").is_some()
}

/// Installs packages without asking.
///
/// # Errors
/// If apt-get fails, for example because this distribution has no package of that name.
pub(crate) fn install<S: AsRef<str>>(packages: &[S]) -> Result<()> {
    let names: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
    let list = names.join(" ");
    apt().arg("update").arg("--quiet=2").status().context("start apt-get update")?;
    let mut command = apt();
    command.args(["install", "--yes", "--quiet=2", "--no-install-recommends"]).args(&names);
    step::run(&format!("install {list}"), &mut command)
}

/// The command that does by hand what [`install`] does.
pub(crate) fn command<S: AsRef<str>>(packages: &[S]) -> String {
    let names: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
    format!("apt-get update && apt-get install --yes {}", names.join(" "))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
