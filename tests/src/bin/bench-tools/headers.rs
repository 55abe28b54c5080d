//! Kernel headers for compiling memleak's programs: merges the two folders of Debian's package.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "/usr/src";

/// The merged folder. The folder is made in `directory` unless it exists.
///
/// # Errors
/// If no headers are installed or they cannot be copied.
pub(crate) fn merged(directory: &Path) -> Result<PathBuf> {
    let names = fs::read_dir(SOURCES).with_context(|| format!("list {SOURCES}"))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions: Vec<String> = names
        .filter_map(|name| {
            Some(name.strip_prefix("linux-headers-")?.strip_suffix("-common")?.to_owned())
        })
        .collect();
    versions.sort();
    let version = versions.pop().context("no linux-headers-VERSION-common is in /usr/src")?;
    let merged = directory.join(format!("linux-headers-{version}"));
    if merged.is_dir() {
        return Ok(merged);
    }
    let partial = directory.join("linux-headers-partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
    for part in ["common", "amd64"] {
        let from = format!("{SOURCES}/linux-headers-{version}-{part}/.");
        ensure!(Path::new(&from).is_dir(), "{from} is not installed");
        let mut copy = Command::new("cp");
        copy.args(["-a", "--remove-destination", &from]).arg(&partial);
        finish(&mut copy)?.success("copy the kernel headers")?;
    }
    fs::rename(&partial, &merged).with_context(|| format!("name {}", merged.display()))?;
    Ok(merged)
}
