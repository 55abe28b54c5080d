//! Finds a Rust toolchain that can build for `bpfel-unknown-none`.
//!
//! That target has no prebuilt `core`. So a toolchain needs the library's source that matches its
//! compiler. Three kinds of toolchain have one:
//! rustup with the component rust-src, Debian with the packages rustc-web and rust-web-src, and any
//! other compiler that comes with its source.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::{step, workspace};

/// The oldest release that compiles the shared code (`rust-version` of the workspace).
const OLDEST: (u32, u32) = (1, 95);

/// A compiler with its cargo and the source of its library.
pub(crate) struct Toolchain {
    /// Path of the toolchain's cargo. The compiler is in the same directory.
    pub(crate) cargo: PathBuf,
    /// Directory of the library's source.
    pub(crate) source: PathBuf,
    /// Major version of the LLVM that writes the compiler's bitcode.
    pub(crate) llvm: u32,
    /// Complete output of `rustc -vV`.
    pub(crate) version: String,
}

impl Toolchain {
    /// The first line of `rustc -vV`.
    pub(crate) fn name(&self) -> &str {
        self.version.lines().next().unwrap_or_default()
    }
}

/// Lists every usable toolchain, the best first: nightlies of rustup, other toolchains of rustup,
/// the distribution's, and the rest of `PATH`.
pub(crate) fn find() -> Vec<Toolchain> {
    let mut compilers: Vec<PathBuf> =
        rustup().into_iter().map(|toolchain| toolchain.join("bin/rustc")).collect();
    compilers.push(PathBuf::from("/usr/bin/rustc"));
    compilers.extend(workspace::all_in_path("rustc").into_iter().filter(|f| !is_proxy(f)));
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for compiler in compilers {
        let Ok(real) = compiler.canonicalize() else { continue };
        if seen.contains(&real) {
            continue;
        }
        seen.push(real);
        // A compiler that cannot be run, or lacks a part, is skipped.
        if let Ok(Some(toolchain)) = inspect(&compiler) {
            found.push(toolchain);
        }
    }
    found
}

/// Whether a compiler is a proxy of rustup: a link to rustup itself, or a copy of it.
fn is_proxy(compiler: &Path) -> bool {
    compiler.parent().is_some_and(|bin| bin.join("rustup").is_file())
}

/// Lists rustup's toolchains with the component rust-src, without running rustup: it might install
/// a toolchain.
fn rustup() -> Vec<PathBuf> {
    let home = env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".rustup")));
    let Some(entries) = home.and_then(|home| fs::read_dir(home.join("toolchains")).ok()) else {
        return Vec::new();
    };
    let mut toolchains: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|toolchain| library(toolchain).is_dir())
        .collect();
    // Nightlies come first. Among them the undated nightly comes first, then the newest.
    toolchains.sort_by_key(|toolchain| {
        let name = toolchain.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (!name.starts_with("nightly"), name.starts_with("nightly-2"), std::cmp::Reverse(name))
    });
    toolchains
}

fn library(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/core")
}

fn inspect(compiler: &Path) -> Result<Option<Toolchain>> {
    let ask = || -> Command { step::isolated(compiler) };
    let sysroot = PathBuf::from(step::output(ask().args(["--print", "sysroot"]))?.trim_end());
    let cargo = compiler.with_file_name("cargo");
    if !library(&sysroot).is_dir() || !cargo.is_file() {
        return Ok(None);
    }
    let version = step::output(ask().arg("-vV"))?;
    let (release, llvm) =
        parse(&version).with_context(|| format!("read the version of {}", compiler.display()))?;
    if release < OLDEST {
        return Ok(None);
    }
    Ok(Some(Toolchain { cargo, source: sysroot.join("lib/rustlib/src/rust"), llvm, version }))
}

/// Release (major, minor) and LLVM's major version from the text of `rustc -vV`.
fn parse(version: &str) -> Option<((u32, u32), u32)> {
    let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name));
    let mut release = field("release: ")?.split('.');
    let release = (release.next()?.parse().ok()?, release.next()?.parse().ok()?);
    let llvm = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
    Some((release, llvm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_and_llvm_version_are_read() {
        let text = "rustc 1.97.0-nightly (e50 2026-05-19)\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n";
        assert_eq!(parse(text), Some(((1, 97), 22)));
        assert_eq!(parse("rustc 1.97.0\n"), None);
    }

    #[test]
    fn every_toolchain_found_has_the_source_of_its_library() {
        for toolchain in find() {
            assert!(toolchain.source.join("library/core").is_dir());
            assert!(toolchain.cargo.is_file());
        }
    }
}
