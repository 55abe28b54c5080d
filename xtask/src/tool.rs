//! Programs of other projects that a verb needs, at the release that this project is tested with.

use std::path::PathBuf;

use anyhow::Result;

use crate::step;
use crate::workspace::{self, Workspace};

/// A program that `cargo install` builds.
pub(crate) struct Tool {
    /// Name of the crate and of its program.
    pub(crate) name: &'static str,
    /// Release of the crate.
    pub(crate) version: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) arguments: &'static [&'static str],
}

impl Tool {
    /// The path of the program. The program is installed under the target directory if there is
    /// none there or in `PATH`.
    ///
    /// # Errors
    /// If the program does not compile.
    pub(crate) fn path(&self, workspace: &Workspace) -> Result<PathBuf> {
        let Tool { name, version, arguments } = self;
        let tools = workspace.tools();
        let own = tools.join("bin").join(name);
        if own.is_file() {
            return Ok(own);
        }
        if let Some(program) = workspace::in_path(name) {
            return Ok(program);
        }
        let mut command = step::isolated(&step::cargo());
        command.args(["install", name, "--version", version, "--locked", "--quiet"]);
        command.args(*arguments).arg("--root").arg(&tools);
        step::run(&format!("install {name} {version}"), &mut command)?;
        Ok(own)
    }
}
