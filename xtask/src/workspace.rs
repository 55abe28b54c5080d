//! Where things are: the repository and the directory that cargo builds into.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

/// The two directories that every verb starts from, both absolute.
pub(crate) struct Workspace {
    /// The repository.
    pub(crate) root: PathBuf,
    /// `$CARGO_TARGET_DIR`, or `target` in the repository.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds both from this package's place and from the environment.
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
        // Relative to the current directory, as cargo reads it.
        let target = match env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(value) => std::path::absolute(&value)
                .with_context(|| format!("find CARGO_TARGET_DIR {}", value.display()))?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The directory of the built eBPF objects, where the daemon's build script looks.
    pub(crate) fn objects(&self) -> PathBuf {
        self.target.join("ebpf")
    }

    /// The cargo that runs this program, at work on the repository.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(step::cargo());
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The directory that tools of our own are installed under (`bin/` in it).
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }
}

/// The first executable file called `name` in `$PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    all_in_path(name).into_iter().next()
}

/// Every executable file called `name` in `$PATH`, in its order.
pub(crate) fn all_in_path(name: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(name)).filter(|f| f.is_file()).collect()
}
