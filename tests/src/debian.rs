//! This machine's Debian.

use anyhow::{Context, Result};
use std::fs;

/// The code name of its release, for `mmdebstrap`.
///
/// # Errors
/// If this machine is no Debian.
pub fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release has no VERSION_CODENAME")?.to_owned())
}
