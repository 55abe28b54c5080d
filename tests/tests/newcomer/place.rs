//! Where the newcomer works. Either this machine with folders of its own, so that installing changes
//! nothing, and a samplerd that runs here already is in nobody's way. Or a new Debian.

use crate::readme;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish_within};
use sampler_tests::terminal::Terminal;
use sampler_tests::{build, debian};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
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

/// Makes the folders of a new Debian, then waits.
const FRESH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/newcomer/fresh.sh");

/// What the new Debian has: the services' languages, and what a person has who clones a repository.
const PACKAGES: &str = "--include=ca-certificates,g++,git,nodejs,procps,python3";

/// Maximum time for fetching and unpacking Debian's packages.
const DEBIAN_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// The machine as the newcomer sees it, with sampler installed by README.md's commands.
pub(crate) struct Place {
    /// Waits in the newcomer's folder, which has README.md's `target` and the services.
    waiting: Child,
    /// Variables of the newcomer's shell, as arguments of `env`.
    environment: Vec<String>,
    /// The folders that the place is made of.
    _folders: Vec<TempDir>,
}

impl Place {
    /// Installs the programs that are built already.
    pub(crate) fn start() -> Result<Place> {
        build::require_root()?;
        build::program("samplerd")?;
        let folders = vec![tempfile::tempdir()?, tempfile::tempdir()?];
        let folder = folders[0].path();
        symlink(build::target_directory()?, folder.join("target")).context("link the programs")?;
        symlink(readme::root().canonicalize()?.join("tests"), folder.join("tests"))
            .context("link the services")?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", MAKE]);
        command.arg(folders[1].path()).current_dir(folder);
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = ["-u", "CARGO_TARGET_DIR", &format!("PATH=/usr/local/bin:{path}")];
        let place = Place::made(&mut command, &environment, folders)?;
        let lines = readme::install()?;
        let copies: Vec<&String> = lines.iter().filter(|line| line.starts_with("sudo ")).collect();
        ensure!(copies.len() >= 2, "README.md installs by {copies:?}");
        copies.into_iter().try_for_each(|line| place.run(line))?;
        Ok(place)
    }

    /// Makes a new Debian, clones the repository into it, and runs every command below "Install".
    pub(crate) fn fresh() -> Result<Place> {
        build::require_root()?;
        let folders = vec![tempfile::tempdir()?];
        let root = folders[0].path().join("root");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", PACKAGES, &debian::release()?]).arg(&root);
        finish_within(&mut make, DEBIAN_DEADLINE)?.success("mmdebstrap")?;
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(readme::root());
        finish_within(clone.arg(root.join("root/sampler")), DEBIAN_DEADLINE)?.success("git")?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", FRESH]).arg(&root);
        command.args([home("CARGO_HOME", ".cargo")?, home("RUSTUP_HOME", ".rustup")?]);
        let path = "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let environment = ["-i", "HOME=/root", "TERM=xterm-256color", &format!("PATH={path}")];
        let place = Place::made(&mut command, &environment, folders)?;
        readme::install()?.iter().try_for_each(|line| place.run(line))?;
        Ok(place)
    }

    fn made(command: &mut Command, environment: &[&str], folders: Vec<TempDir>) -> Result<Place> {
        let mut waiting = Child::start("unshare", command)?;
        ensure!(waiting.line()? == "made", "the place must be made");
        let environment = environment.iter().map(|word| (*word).to_owned()).collect();
        Ok(Place { waiting, environment, _folders: folders })
    }

    /// The words that run a program here.
    pub(crate) fn entering(&self, program: &[&str]) -> Vec<String> {
        let target = format!("--target={}", self.waiting.pid());
        let enter = ["nsenter", &target, "--mount", "--root", "--wd", "env"].map(str::to_owned);
        let program = program.iter().map(|word| (*word).to_owned());
        enter.into_iter().chain(self.environment.iter().cloned()).chain(program).collect()
    }

    /// Types a line into a terminal of 80 columns.
    pub(crate) fn types(&self, line: &str) -> Result<Terminal> {
        let words = self.entering(&["sh", "-c", line]);
        Terminal::start(SCREEN, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a line that must succeed.
    pub(crate) fn run(&self, line: &str) -> Result<()> {
        eprintln!("$ {line}");
        let begin = Instant::now();
        let words = self.entering(&["sh", "-c", line]);
        let mut command = Command::new(&words[0]);
        finish_within(command.args(&words[1..]), FRESH_DEADLINE)?.success(line)?;
        eprintln!("({:.1} s)", begin.elapsed().as_secs_f64());
        Ok(())
    }
}

/// A folder of the Rust toolchain: what the variable says, or its usual place.
fn home(variable: &str, usual: &str) -> Result<PathBuf> {
    let usual = || std::env::home_dir().map(|home| home.join(usual));
    let folder = std::env::var_os(variable).map(PathBuf::from).or_else(usual);
    folder.with_context(|| format!("neither {variable} nor HOME is set"))
}
