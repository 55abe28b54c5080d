//! A program whose debug data a test prepares, and a samplerd that profiles it.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::{Daemon, Profile, Workload, build};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The sources of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/names");

/// What the tests' scripts begin with. A script makes `program`, and puts what is to be installed
/// below `/usr/lib/debug` into `debug`.
const PRELUDE: &str = r#"
mkdir debug
compile() {
    cc -O2 -fno-builtin -fno-optimize-sibling-calls -rdynamic -Wl,--build-id=sha1 "$@" \
        "$SOURCES/kinds.c" -o program -lm
}
# Where the debug file of the build id of $1 is installed; makes its directory.
by_build_id() {
    id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
    mkdir -p "debug/.build-id/$(echo "$id" | cut -c1-2)"
    echo "debug/.build-id/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-).debug"
}
# Moves the debug data of the program to the file $1.
detach() {
    objcopy --only-keep-debug program "$1"
    strip program
}
"#;

/// Binds the folder of the first argument to `/usr/lib/debug`, and executes the others.
const BIND: &str = r#"
mkdir -p /usr/lib/debug
mount --bind "$1" /usr/lib/debug
shift
exec "$@"
"#;

/// A folder with `program`, and with `debug`, which samplerd has as `/usr/lib/debug`.
pub(crate) struct Case {
    directory: TempDir,
}

impl Case {
    /// Runs a script, after [`PRELUDE`], in a new folder.
    pub(crate) fn made_by(script: &str) -> Result<Case> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let script = format!("{PRELUDE}\n{script}");
        let output = Command::new("sh")
            .args(["-euc", &script])
            .current_dir(directory.path())
            .env("SOURCES", SOURCES)
            .output()
            .context("run sh")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{script}: {said}");
        Ok(Case { directory })
    }

    /// The path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Profiles the program. Only this samplerd has `debug` as `/usr/lib/debug`.
    pub(crate) fn profiled(&self) -> Result<Profiled> {
        let mut workload = Workload::start_program(&self.path("program"), &[])?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", BIND, "sh"]).arg(self.path("debug"));
        command.arg(build::program("samplerd")?);
        let daemon = Daemon::start_by(command, &[workload.pid()], &["--interval", "4KiB"])?;
        workload.go()?;
        let profile = daemon.profile_where("samples", "alloc", &[], |of| of.samples > 0)?;
        Ok(Profiled { profile, daemon, _workload: workload })
    }

    /// Checks which names the profile has.
    pub(crate) fn shows(&self, names: Names) -> Result<()> {
        let profiled = self.profiled()?;
        profiled.shows(names)?;
        profiled.daemon.stop()
    }
}

/// Which names of `kinds.c` a profile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Names {
    /// Those of exported functions.
    Exported,
    /// Those of all functions that have a symbol.
    Symbols,
    /// The same, and lines of the source.
    SymbolsAndLines,
    /// The same, and those of inlined functions.
    All,
}

/// A profile, and the samplerd that made it.
pub(crate) struct Profiled {
    pub(crate) profile: Profile,
    pub(crate) daemon: Daemon,
    _workload: Workload,
}

impl Profiled {
    /// Checks which names the profile has.
    pub(crate) fn shows(&self, names: Names) -> Result<()> {
        let text = self.daemon.sampler(&["profile", "--kind", "alloc", "--stacks"])?;
        let text = String::from_utf8_lossy(&text.success("sampler profile")?.stdout).into_owned();
        let line = format!("kinds.c:{}", line_of("malloc(size)")?);
        let found = [
            ("is_exported", Names::Exported),
            ("is_static", Names::Symbols),
            ("is_inlined", Names::All),
        ];
        for (function, least) in found {
            let is_there = self.profile.stacks_of(function).next().is_some();
            let says = || format!("{function}: {}{}", self.profile.folded(), self.daemon.log());
            ensure!(is_there == (names >= least), says());
        }
        ensure!(text.contains(&line) == (names >= Names::SymbolsAndLines), "{line}: {text}");
        self.has_no_empty_name()
    }

    /// Checks that each frame of the profile has a name.
    pub(crate) fn has_no_empty_name(&self) -> Result<()> {
        let mut frames = self.profile.stacks.iter().flat_map(|stack| &stack.frames);
        ensure!(frames.all(|frame| !frame.trim().is_empty()), "{}", self.profile.folded());
        Ok(())
    }

    /// The names of the profile's frames that contain `part`.
    pub(crate) fn names_with(&self, part: &str) -> Vec<&str> {
        let frames = self.profile.stacks.iter().flat_map(|stack| &stack.frames);
        frames.map(String::as_str).filter(|name| name.contains(part)).collect()
    }
}

/// The number of the line of `kinds.c` with this text.
fn line_of(text: &str) -> Result<usize> {
    let source = fs::read_to_string(Path::new(SOURCES).join("kinds.c")).context("read kinds.c")?;
    let index = source.lines().position(|line| line.contains(text));
    Ok(index.with_context(|| format!("{text} is not in kinds.c"))? + 1)
}
