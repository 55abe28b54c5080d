//! A user without rights, and programs that this user can run.

use crate::build;
use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// User and group id.
pub const NOBODY: u32 = 65534;

/// A command that runs the program as this user.
pub fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
    command
}

/// Lets everybody into a directory.
///
/// # Errors
/// If the directory is not ours.
pub fn open_directory(directory: &Path) -> Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).context("open a directory")
}

/// A copy of one of our programs that everybody can read: the build directory may be closed to
/// other users.
pub struct PublicCopy {
    /// Path of the copy.
    pub program: PathBuf,
    _directory: TempDir,
}

impl PublicCopy {
    /// Copies `samplerd`, `sampler` or `sampler-inject`.
    ///
    /// # Errors
    /// If the program is not built.
    pub fn of(name: &str) -> Result<PublicCopy> {
        let directory = tempfile::tempdir()?;
        open_directory(directory.path())?;
        let program = directory.path().join(name);
        fs::copy(build::program(name)?, &program).with_context(|| format!("copy {name}"))?;
        Ok(PublicCopy { program, _directory: directory })
    }
}
