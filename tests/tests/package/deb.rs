//! The package that `cargo xtask package` has made, and a later version of it.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::finish;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The package of this version.
pub(crate) fn built() -> Result<PathBuf> {
    let name = format!("debian/sampler_{VERSION}_amd64.deb");
    let path = build::target_directory()?.join(name);
    ensure!(path.is_file(), "{} does not exist: cargo xtask package makes it", path.display());
    Ok(path)
}

/// The package with a higher version, and with a changed file `changed`.
pub(crate) fn upgrade(deb: &Path, version: &str, changed: &str, into: &Path) -> Result<PathBuf> {
    let tree = into.join("tree");
    dpkg_deb(&["--raw-extract"], &[deb, &tree])?;
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).context("read the control file")?;
    let (old, new) = (format!("Version: {VERSION}\n"), format!("Version: {version}\n"));
    ensure!(text.contains(&old), "no version in {text}");
    fs::write(&control, text.replace(&old, &new)).context("write the control file")?;
    // An ELF file may be longer than its headers say.
    let file = tree.join(changed);
    let mut file = OpenOptions::new().append(true).open(&file).context("open a program")?;
    file.write_all(b"upgraded").context("write to a program")?;
    let later = into.join(format!("sampler_{version}_amd64.deb"));
    dpkg_deb(&["-Znone", "--build"], &[&tree, &later])?;
    Ok(later)
}

fn dpkg_deb(options: &[&str], paths: &[&Path]) -> Result<()> {
    finish(Command::new("dpkg-deb").args(options).args(paths))?.success("dpkg-deb")?;
    Ok(())
}
