//! The commands that README.md prints.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The process that README.md's commands are about.
const SERVICE: &str = "$(pidof -s my-service)";

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The lines of the first shell block below a heading of README.md.
fn block(heading: &str) -> Result<Vec<String>> {
    let page = fs::read_to_string(root().join("README.md")).context("read README.md")?;
    let (_, section) =
        page.split_once(heading).with_context(|| format!("README.md has no {heading:?}"))?;
    let (_, rest) = section.split_once("```sh\n").context("the section has no commands")?;
    let (lines, _) = rest.split_once("```").context("the commands have no end")?;
    Ok(lines.lines().map(str::to_owned).collect())
}

/// The commands below "Install".
pub(crate) fn install() -> Result<Vec<String>> {
    block("\n## Install\n")
}

/// The commands below "Memory grows: now what?".
pub(crate) struct Hunt {
    /// Starts samplerd.
    pub(crate) start: String,
    /// The questions, in their order.
    pub(crate) questions: Vec<String>,
}

impl Hunt {
    /// Reads the commands, and puts in the process id of the service.
    pub(crate) fn of(pid: u32) -> Result<Hunt> {
        let mut lines = block("\n## Memory grows: now what?\n")?;
        ensure!(lines[0].contains(SERVICE), "{:?} has no {SERVICE}", lines[0]);
        let start = lines.remove(0).replace(SERVICE, &pid.to_string());
        Ok(Hunt { start, questions: lines })
    }
}
