//! The places of the project: the repository and the directory that cargo builds into.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::step;

/// Free space that a build from nothing needs with its tests, in GiB. The builds take 9, the tools
/// and engines of the tests 2 more.
const BUILD_GIB: u64 = 16;
/// Free space that a further build needs, in GiB.
const REBUILD_GIB: u64 = 4;

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
        // Cargo describes this package to this program. The build scripts of some crates look at
        // these variables, and would run again after each build by hand.
        let inherited = env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        inherited.for_each(|name| {
            command.env_remove(name);
        });
        command
    }

    /// Checks that the file system has room for a build. A linker that finds none ends with a bus
    /// error, which tells nobody why.
    ///
    /// # Errors
    /// If there is too little room.
    pub(crate) fn require_space(&self) -> Result<()> {
        let is_built = self.target.join("debug/deps").exists();
        let needed = if is_built { REBUILD_GIB } else { BUILD_GIB };
        let mut command = Command::new("df");
        command.args(["--output=avail", "--block-size=1G"]).arg(&self.root);
        let text = step::output(&mut command)?;
        let free = text.lines().last().unwrap_or_default().trim();
        let free: u64 = free.parse().with_context(|| format!("parse df's {free:?}"))?;
        ensure!(
            free >= needed,
            "{}: {free} GiB free, {needed} GiB needed (remove target directories of other checkouts)",
            self.target.display()
        );
        Ok(())
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
