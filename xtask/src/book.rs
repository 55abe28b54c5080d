//! `cargo xtask book`: the documentation as one site, by mdBook.
//!
//! Pages link to each other by their places in the repository. So the pages are copied with their
//! folders, and `SUMMARY.md` lists them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::step;
use crate::tool::Tool;
use crate::workspace::Workspace;

const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    arguments: &["--no-default-features", "--features", "search"],
};
/// Files and folders of the repository that the book has, or that its pages link to.
const SOURCES: [&str; 9] = [
    "SUMMARY.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "examples",
    "packaging",
    "proto",
];

/// Makes the book, and prints the path of its first page.
///
/// # Errors
/// If mdBook cannot be installed, or if a file cannot be copied.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let program = MDBOOK.path(workspace)?;
    let book = workspace.target.join("book");
    if book.exists() {
        fs::remove_dir_all(&book).with_context(|| format!("remove {}", book.display()))?;
    }
    for source in SOURCES {
        copy(&workspace.root.join(source), &book.join("src").join(source))?;
    }
    copy(&workspace.root.join("book.toml"), &book.join("book.toml"))?;
    step::output(Command::new(program).arg("build").arg(&book)).context("mdbook")?;
    let first = book.join("book/index.html");
    ensure!(first.is_file(), "mdbook made no {}", first.display());
    println!("{}", first.display());
    Ok(())
}

/// Copies a file, or a folder with all that it has.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("copy {} to {}", from.display(), to.display());
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    let folder = to.parent().with_context(failed)?;
    fs::create_dir_all(folder).with_context(failed)?;
    fs::copy(from, to).with_context(failed)?;
    Ok(())
}
