//! `cargo xtask commands`: writes `docs/options.md` from what the programs print with `--help`.
//!
//! The end-to-end test that compares the page with the programs also writes it.

use anyhow::Result;

use crate::step;
use crate::workspace::Workspace;

/// Builds the programs, and has the test write the page.
///
/// # Errors
/// If something does not build.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    step::run("build", workspace.cargo().args(["build", "--release", "--bins"]))?;
    let mut cargo = workspace.cargo();
    cargo.args(["test", "-p", "sampler-tests", "--test=documented", "the_page_of_options"]);
    step::run("docs/options.md", cargo.env("UPDATE_GOLDEN", "1"))
}
