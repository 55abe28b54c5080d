//! SQL engines for the end-to-end tests of exported tables: Python packages in a virtual
//! environment in the folder `fleet` of the target directory. The machine stays unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;
use crate::workspace::Workspace;

/// The engines, at the releases that this project is tested with. chdb is ClickHouse as a library.
const PACKAGES: [&str; 2] = ["duckdb==2.0.1", "chdb==4.4.0"];
/// Spark, which is large and starts slowly.
const SPARK: &str = "pyspark==4.3.0";

/// Installs the engines if they are not there yet. Engines that cannot be had are named, and the
/// tests name them again.
///
/// # Errors
/// If what an interrupted run left cannot be removed.
pub(crate) fn ensure(workspace: &Workspace, with_spark: bool) -> Result<()> {
    let folder = workspace.target.join("fleet");
    make(workspace, &folder)?;
    if with_spark && let Err(error) = pip(&folder, &[SPARK]) {
        eprintln!("NOT TESTED: {SPARK} cannot be had: {error:#}");
    }
    Ok(())
}

fn make(workspace: &Workspace, folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let unfinished = workspace.target.join("fleet.part");
    if unfinished.is_dir() {
        fs::remove_dir_all(&unfinished).context("remove what an interrupted run left")?;
    }
    if let Err(error) = install(&unfinished, folder) {
        eprintln!("NOT TESTED: {} cannot be had: {error:#}", PACKAGES.join(" and "));
    }
    Ok(())
}

fn install(unfinished: &Path, folder: &Path) -> Result<()> {
    step::run(
        "make a virtual environment",
        Command::new("python3").args(["-m", "venv"]).arg(unfinished),
    )?;
    pip(unfinished, &PACKAGES)?;
    // The folder gets its name last, so that an interrupted installation is repeated. `bin/python`
    // finds its packages by its own place.
    fs::rename(unfinished, folder).with_context(|| format!("make {}", folder.display()))
}

/// Installs packages. Packages that are there already stay as they are.
fn pip(folder: &Path, packages: &[&str]) -> Result<()> {
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    step::run(&format!("install {}", packages.join(" and ")), &mut pip)
}
