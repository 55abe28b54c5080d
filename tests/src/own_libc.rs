//! A private copy of the C library. No other process maps the copy, so its probes hit only the
//! test's programs.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The copy of the library, with its loader.
pub struct OwnLibc {
    directory: TempDir,
}

impl OwnLibc {
    /// Copies the C library of this process.
    pub fn copy() -> Result<OwnLibc> {
        OwnLibc::copy_to(tempfile::tempdir().context("make a directory")?)
    }

    /// [`OwnLibc::copy`] into a directory of choice.
    pub fn copy_to(directory: TempDir) -> Result<OwnLibc> {
        let maps = fs::read_to_string("/proc/self/maps").context("read /proc/self/maps")?;
        for name in ["libc.so.6", "ld-linux-x86-64.so.2"] {
            let paths = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
            let mut named = paths.filter(|path| Path::new(path).file_name() == Some(name.as_ref()));
            let path = named.next().with_context(|| format!("no {name} in this process"))?;
            fs::copy(path, directory.path().join(name)).with_context(|| format!("copy {path}"))?;
        }
        Ok(OwnLibc { directory })
    }

    /// Path of the library, as its programs map it.
    pub fn path(&self) -> Result<String> {
        let directory = self.directory.path().canonicalize().context("find the directory")?;
        Ok(directory.join("libc.so.6").display().to_string())
    }

    /// Path of the loader.
    pub fn loader(&self) -> PathBuf {
        self.directory.path().join("ld-linux-x86-64.so.2")
    }

    /// A command that runs `program` with the copy.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.directory.path()).arg(program);
        command
    }
}
