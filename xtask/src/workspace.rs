//! The places of the project: the repository and the directory that cargo builds into.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

/// The two directories that every verb uses, both absolute.
pub(crate) struct Workspace {
    /// The repository.
    pub(crate) root: PathBuf,
    /// `$CARGO_TARGET_DIR`, or `target` in the repository.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds both directories from this package's place and from the environment.
    ///
    /// # Errors
    /// If the repository is no longer where this binary was built from.
    pub(crate) fn locate() -> Result<Self> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = package
            .parent()
            .unwrap_or(package)
            .canonicalize()
            .with_context(|| format!("find the repository above {}", package.display()))?;
        // A relative path counts from the current directory, as in cargo.
        let target = match env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(value) => std::path::absolute(&value)
                .with_context(|| format!("find CARGO_TARGET_DIR {}", value.display()))?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The directory of the built eBPF objects, where the daemon's build script finds them.
    pub(crate) fn objects(&self) -> PathBuf {
        self.target.join("ebpf")
    }

    /// A command of the cargo that runs this program, in the repository.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(step::cargo());
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The directory under which the project's own tools are installed (in its `bin/`).
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }
}

/// Finds the first file called `name` in `$PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    all_in_path(name).into_iter().next()
}

/// Lists every file called `name` in `$PATH`, in the order of `$PATH`.
pub(crate) fn all_in_path(name: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(name)).filter(|f| f.is_file()).collect()
}
