//! Programs that load the in-process sampler.

use crate::{Workload, build};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directory of Debian's libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Allocators to which the sampler may forward.
pub const ALLOCATORS: &[&str] =
    &["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"];

/// The library, built with `cargo xtask build-preload`.
pub fn library() -> Result<PathBuf> {
    let path = build::target_directory()?.join("release/libsampler_preload.so");
    ensure!(path.is_file(), "{} does not exist (cargo xtask build-preload)", path.display());
    Ok(path)
}

/// Copies the library into `directory`.
pub fn copy(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("libcopy.so");
    std::fs::copy(library()?, &path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Has `command` preload the library, sampling every `interval` bytes, before an allocator (a file
/// of Debian's).
pub fn preload(command: &mut Command, interval: u64, allocator: Option<&str>) -> Result<()> {
    let mut files = vec![library()?];
    if let Some(name) = allocator {
        files.push(debian(name)?);
    }
    load(command, interval, &files);
    Ok(())
}

/// Has `command` preload the library after an allocator: malloc is then the allocator's.
pub fn in_front(command: &mut Command, interval: u64, allocator: &str) -> Result<()> {
    load(command, interval, &[debian(allocator)?, library()?]);
    Ok(())
}

/// Has `command` load these files in this order; ours samples every `interval` bytes.
pub fn load(command: &mut Command, interval: u64, files: &[PathBuf]) {
    let list: Vec<&OsStr> = files.iter().map(|file| file.as_os_str()).collect();
    command.env("LD_PRELOAD", list.join(OsStr::new(":")));
    command.env("SAMPLER_INTERVAL", interval.to_string());
}

/// A library of Debian's, which must be installed.
pub fn debian(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(LIBRARIES).join(name);
    ensure!(path.exists(), "{} is missing (see xtask/src/packages.rs)", path.display());
    Ok(path)
}

/// Starts the workload `source` with the library preloaded.
pub fn workload(source: &str, arguments: &[&str], interval: u64) -> Result<Workload> {
    behind(source, arguments, interval, None)
}

/// Starts the workload `source` with the library preloaded, before an allocator.
pub fn behind(
    source: &str,
    arguments: &[&str],
    interval: u64,
    allocator: Option<&str>,
) -> Result<Workload> {
    let mut command = Command::new(build::compile(source, &[])?);
    preload(command.args(arguments), interval, allocator)?;
    Workload::spawn(source, &mut command)
        .with_context(|| format!("{source} in front of {}", allocator.unwrap_or("glibc")))
}
