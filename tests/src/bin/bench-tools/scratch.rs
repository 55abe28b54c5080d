//! Resources that must not outlive the benchmark: its directory, and processes that die with it,
//! however it ends.

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
    /// Removes the directory when it is dropped.
    _whole: Option<TempDir>,
}

impl Scratch {
    /// Makes the directory, and handles signals from now on.
    ///
    /// # Errors
    /// If the directory cannot be made, or signals cannot be handled.
    pub(crate) fn create() -> Result<Scratch> {
        let directory = tempfile::Builder::new().prefix("sampler-bench-").tempdir();
        let directory = directory.context("make a directory for the benchmark")?;
        end_by_signal(directory.path().to_owned())?;
        // The daemons' directories go there, too. No other code has overridden the directory
        // before.
        let _ = tempfile::env::override_temp_dir(directory.path());
        Ok(Scratch { path: directory.path().to_owned(), _whole: Some(directory) })
    }

    /// Path of `name` in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A subdirectory, so that programs that run at the same time have files of their own.
    ///
    /// # Errors
    /// If the subdirectory cannot be made.
    pub(crate) fn part(&self, name: &str) -> Result<Scratch> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Scratch { path, _whole: None })
    }
}

/// Removes `directory` and ends this process on SIGINT or SIGTERM.
/// The kernel closes the links with the descriptors; [`bound`] kills the children.
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
        // No caller is left to report a failure to.
        let _ = std::fs::remove_dir_all(&directory);
        eprintln!("bench tools: interrupted; everything it started is killed");
        std::process::exit(code);
    });
    Ok(())
}

/// An environment variable of a program.
pub(crate) type Variable = (&'static str, String);

/// A command that the kernel kills when this process is gone. `environment` is that of the program
/// alone: a library that is preloaded into the program must not be preloaded into the helpers that
/// start the program.
pub(crate) fn bound(program: impl AsRef<OsStr>, environment: &[Variable]) -> Command {
    laid_out(Layout::Random, program, environment)
}

/// [`bound`], with this layout of the program's memory.
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

/// The last lines of a log that are not blank, for an error.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
