//! Where the newcomer works: this machine with folders of its own, so that installing changes
//! nothing, and a samplerd that runs here already is in nobody's way.

use crate::readme;
use anyhow::{Context, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::{Child, finish_within};
use sampler_tests::terminal::Terminal;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Columns and lines of the newcomer's terminal. Many lines: a person can scroll.
const SCREEN: (u16, u16) = (80, 300);

/// A fresh clone needs all crates and the toolchain of the eBPF program.
const FRESH_DEADLINE: Duration = Duration::from_secs(45 * 60);

/// Makes the folders, then waits. `sudo` is a script, because containers have none.
const MAKE: &str = r#"set -e
mount -t tmpfs none "$0"
for name in bin lib; do
    mkdir -p "$0/$name" "$0/work-$name" /usr/local/$name
    mount -t overlay none -o "lowerdir=/usr/local/$name,upperdir=$0/$name,workdir=$0/work-$name" /usr/local/$name
done
mount -t tmpfs none /run
printf '#!/bin/sh\nexec "$@"\n' > /usr/local/bin/sudo
chmod +x /usr/local/bin/sudo
echo made
exec sleep infinity"#;

/// The machine as the newcomer sees it, with sampler installed by README.md's commands.
pub(crate) struct Place {
    namespace: Child,
    /// The folder that the newcomer is in, and the folder of the mounts.
    folders: [TempDir; 2],
}

impl Place {
    /// Installs the programs that are built already.
    pub(crate) fn start() -> Result<Place> {
        let place = Place::empty()?;
        let folder = place.folders[0].path();
        symlink(build::target_directory()?, folder.join("target")).context("link the programs")?;
        build::program("samplerd")?;
        let lines: Vec<String> = readme::install()?;
        let copies: Vec<&String> = lines.iter().filter(|line| line.starts_with("sudo ")).collect();
        ensure!(copies.len() >= 2, "README.md installs by {copies:?}");
        copies.into_iter().try_for_each(|line| place.run(line))?;
        Ok(place)
    }

    /// Clones the repository, and runs every command below "Install".
    pub(crate) fn fresh() -> Result<Place> {
        let place = Place::empty()?;
        let root = readme::root();
        place.run(&format!("git clone --quiet --no-hardlinks {} .", root.display()))?;
        readme::install()?.iter().try_for_each(|line| place.run(line))?;
        Ok(place)
    }

    fn empty() -> Result<Place> {
        build::require_root()?;
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", MAKE]);
        let mut namespace = Child::start("unshare", command.arg(folders[1].path()))?;
        ensure!(namespace.line()? == "made", "the folders must be made");
        Ok(Place { namespace, folders })
    }

    /// A command that runs a line of README.md here.
    fn entering(&self, line: &str) -> Vec<String> {
        let mount = format!("--mount=/proc/{}/ns/mnt", self.namespace.pid());
        let folder = format!("--wd={}", self.folders[0].path().display());
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("PATH=/usr/local/bin:{path}");
        let words = ["nsenter", &mount, &folder, "env", "-u", "CARGO_TARGET_DIR", &path];
        words.into_iter().chain(["sh", "-c", line]).map(str::to_owned).collect()
    }

    /// Types a line into a terminal of 80 columns.
    pub(crate) fn types(&self, line: &str) -> Result<Terminal> {
        let words = self.entering(line);
        Terminal::start(SCREEN, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a line that must succeed.
    fn run(&self, line: &str) -> Result<()> {
        eprintln!("$ {line}");
        let words = self.entering(line);
        let mut command = Command::new(&words[0]);
        finish_within(command.args(&words[1..]), FRESH_DEADLINE)?.success(line).map(drop)
    }
}
