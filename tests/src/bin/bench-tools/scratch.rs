//! What must not stay behind: a directory of its own, and processes that die with this one, however it ends.

use crate::layout::Layout;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A directory for sockets, logs and sources, removed at the end, also after SIGINT and SIGTERM.
pub(crate) struct Scratch {
    path: PathBuf,
    /// Removes it.
    _whole: Option<TempDir>,
}

impl Scratch {
    /// Makes it, and sees to signals from now on.
    ///
    /// # Errors
    /// If it cannot be made, or signals cannot be handled.
    pub(crate) fn create() -> Result<Scratch> {
        let directory = tempfile::Builder::new().prefix("sampler-bench-").tempdir();
        let directory = directory.context("make a directory for the benchmark")?;
        end_by_signal(directory.path().to_owned())?;
        // The daemons' directories go there, too; nobody has set another before.
        let _ = tempfile::env::override_temp_dir(directory.path());
        Ok(Scratch { path: directory.path().to_owned(), _whole: Some(directory) })
    }

    /// Path of `name` in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A directory in it, where programs that run at the same time have files of their own.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn part(&self, name: &str) -> Result<Scratch> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Scratch { path, _whole: None })
    }
}

/// On SIGINT or SIGTERM removes `directory` and ends this process: its links go with its descriptors, its children by [`bound`].
fn end_by_signal(directory: PathBuf) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("wait for signals")?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    drop(entered);
    std::thread::spawn(move || {
        let code = runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => 130, _ = terminate.recv() => 143 }
        });
        // Nobody is left to tell if that fails.
        let _ = std::fs::remove_dir_all(&directory);
        eprintln!("bench tools: interrupted; everything it started is killed");
        std::process::exit(code);
    });
    Ok(())
}

/// An environment variable of a program.
pub(crate) type Variable = (&'static str, String);

/// A command that the kernel kills when this process is gone. `environment` is that of the program alone: what preloads
/// something there must not do so in the helpers that start it.
pub(crate) fn bound(program: impl AsRef<OsStr>, environment: &[Variable]) -> Command {
    laid_out(Layout::Random, program, environment)
}

/// [`bound`], with the program's memory laid out so.
pub(crate) fn laid_out(
    layout: Layout,
    program: impl AsRef<OsStr>,
    environment: &[Variable],
) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(layout.command()).arg("env");
    let fixed = layout.environment();
    command.args(fixed.iter().chain(environment).map(|(name, value)| format!("{name}={value}")));
    command.arg(program);
    command
}

/// The end of a log, for an error: its last lines that say something.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
