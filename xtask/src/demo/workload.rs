//! The program that the demonstration profiles: a service in Python with a library in C. Without
//! Python it is a program in C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::step;
use crate::workspace::{self, Workspace};

/// A program that grows until its standard input ends.
pub(crate) enum Workload {
    /// python3 with a script, and a library.
    Python(PathBuf),
    /// The project's own program.
    C,
}

impl Workload {
    /// Chooses python3 if this machine has it.
    pub(crate) fn choose() -> Self {
        // The distribution's python3 is a real binary. An earlier one in PATH may be a script.
        let distribution = Path::new("/usr/bin/python3");
        let python = match distribution.is_file() {
            true => Some(distribution.to_owned()),
            false => workspace::in_path("python3"),
        };
        python.map_or(Self::C, Self::Python)
    }

    /// Functions that leak, as `sampler leaks` names them.
    pub(crate) fn leaks(&self) -> &'static [&'static str] {
        match self {
            Self::Python(_) => &["cache_page", "log_entry"],
            Self::C => &["cache_page"],
        }
    }

    /// Starts the program. It ends by itself when the standard input of the returned process is
    /// dropped, and so also when xtask dies.
    ///
    /// # Errors
    /// If the program cannot be compiled or started.
    pub(crate) fn start(&self, workspace: &Workspace) -> Result<(&'static str, Child)> {
        let sources = workspace.root.join("xtask/demo");
        let (what, mut command) = match self {
            Self::Python(python) => {
                let library = workspace.target.join("demo-words.so");
                compile(&sources.join("words.c"), &library, &["-shared", "-fPIC"])?;
                let mut command = Command::new(python);
                command.arg(sources.join("cache.py")).arg(library);
                ("xtask/demo/cache.py with xtask/demo/words.c", command)
            }
            Self::C => {
                let program = workspace.target.join("demo-cache");
                compile(&sources.join("cache.c"), &program, &[])?;
                ("xtask/demo/cache.c", Command::new(program))
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {what}"))?;
        Ok((what, child))
    }
}

fn compile(source: &Path, output: &Path, flags: &[&str]) -> Result<()> {
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let mut command = Command::new("cc");
    // One function of the source gives one frame.
    command.args(["-O2", "-g", "-fno-inline", "-fno-optimize-sibling-calls", "-pthread"]);
    step::output(command.args(flags).arg("-o").arg(output).arg(source))
        .with_context(|| format!("compile {}", source.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_workload_runs_until_its_input_ends() {
        let workspace = Workspace::locate().unwrap();
        for workload in [Workload::C, Workload::choose()] {
            let (what, mut child) = workload.start(&workspace).unwrap();
            thread::sleep(Duration::from_millis(30));
            assert!(child.try_wait().unwrap().is_none(), "{what} ended early");
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success(), "{what}");
        }
    }
}
