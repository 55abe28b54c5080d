//! The program that the demonstration profiles: the first that this machine has.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail};

use crate::step;
use crate::workspace::{self, Workspace};

/// One round of sqlite3's work. [`ROUND_PAUSE`] is the pause after a round.
const ROUND: &str = include_str!("../../demo/orders.sql");
const ROUND_PAUSE: Duration = Duration::from_millis(30);

/// A program that grows until its standard input ends.
pub(crate) enum Workload {
    /// python3 with a script that caches.
    Python(PathBuf),
    /// sqlite3 with a database in memory.
    Sqlite(PathBuf),
    /// The project's own program, compiled with the C compiler that Rust links with.
    Shipped,
}

impl Workload {
    /// Chooses the first of python3, sqlite3 and the project's own program.
    pub(crate) fn choose() -> Self {
        // The distribution's python3 is a real binary. An earlier one in PATH may be a script.
        let distribution = Path::new("/usr/bin/python3");
        let python = if distribution.is_file() {
            Some(distribution.to_owned())
        } else {
            workspace::in_path("python3")
        };
        match (python, workspace::in_path("sqlite3")) {
            (Some(python), _) => Self::Python(python),
            (None, Some(sqlite)) => Self::Sqlite(sqlite),
            (None, None) => Self::Shipped,
        }
    }

    /// Starts the program. It ends by itself when the standard input of the returned process is
    /// dropped, and so also when xtask dies.
    ///
    /// # Errors
    /// If the program cannot be compiled or started.
    pub(crate) fn start(&self, workspace: &Workspace) -> Result<(String, Child)> {
        let sources = workspace.root.join("xtask/demo");
        let (what, mut command) = match self {
            Self::Python(python) => {
                let mut command = Command::new(python);
                // Python's own arenas would hide single objects from every malloc profiler.
                command.arg(sources.join("cache.py")).env("PYTHONMALLOC", "malloc");
                ("PYTHONMALLOC=malloc python3 xtask/demo/cache.py", command)
            }
            Self::Sqlite(sqlite) => {
                let mut command = Command::new(sqlite);
                command.arg(":memory:");
                ("sqlite3 :memory: with xtask/demo/orders.sql", command)
            }
            Self::Shipped => {
                let program = compile(workspace, &sources.join("cache.c"))?;
                ("xtask/demo/cache.c", Command::new(program))
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("start {what}"))?;
        if let Self::Sqlite(_) = self
            && let Some(mut input) = child.stdin.take()
        {
            // Writing fails once the program has ended.
            thread::spawn(move || {
                while input.write_all(ROUND.as_bytes()).is_ok() {
                    thread::sleep(ROUND_PAUSE);
                }
            });
        }
        Ok((what.to_owned(), child))
    }
}

fn compile(workspace: &Workspace, source: &Path) -> Result<PathBuf> {
    let Some(compiler) = workspace::in_path("cc") else {
        bail!("neither python3 nor sqlite3 nor a C compiler is installed: install one of them");
    };
    fs::create_dir_all(&workspace.target)
        .with_context(|| format!("create {}", workspace.target.display()))?;
    let program = workspace.target.join("demo-cache");
    let mut command = Command::new(compiler);
    // One function of the source gives one frame.
    command.args(["-O2", "-g", "-fno-inline", "-fno-optimize-sibling-calls", "-o"]);
    step::output(command.arg(&program).arg(source))
        .with_context(|| format!("compile {}", source.display()))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_runs_until_its_input_ends() {
        let workspace = Workspace::locate().unwrap();
        for workload in [Workload::Shipped, Workload::choose()] {
            let (what, mut child) = workload.start(&workspace).unwrap();
            thread::sleep(ROUND_PAUSE);
            assert!(child.try_wait().unwrap().is_none(), "{what} ended early");
            if let Workload::Sqlite(_) = workload {
                // The thread that feeds the program holds its input.
                child.kill().unwrap();
                child.wait().unwrap();
                continue;
            }
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success(), "{what}");
        }
    }
}
