//! `cargo xtask newcomer`: README.md's commands in a new Debian, with three services that leak.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{ebpf, packages, step};

/// Builds the test that plays the newcomer, and runs its part that needs a new Debian.
///
/// # Errors
/// Without root, if a tool is missing and cannot be installed, or if a leak is not found.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    packages::require_root("a new Debian has namespaces", "newcomer")?;
    packages::ensure(&[&packages::BUILD[..], &packages::NEWCOMER].concat())?;
    ebpf::build(workspace, false, false)?;
    let test = ["test", "--workspace", "--test=newcomer", "--", "--ignored", "--nocapture"];
    step::run("newcomer", workspace.cargo().args(test))
}
