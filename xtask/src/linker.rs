//! Finds or installs bpf-linker, which turns the compiler's bitcode into the eBPF object.
//!
//! bpf-linker reads bitcode with an LLVM of its own, which must not be older than the compiler's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::read::elf::FileHeader;
use object::{Endianness, elf};

use crate::step;
use crate::workspace::{self, Workspace};

/// Release of bpf-linker that the project is tested with.
const VERSION: &str = "0.13.0";
/// Major versions of LLVM for which this release can be built.
const BUILDABLE: std::ops::RangeInclusive<u32> = 21..=23;

/// An installed bpf-linker.
pub(crate) struct Linker {
    /// The program.
    pub(crate) program: PathBuf,
    /// Major version of its LLVM; `None`: LLVM is linked statically, so its version is unknown.
    llvm: Option<u32>,
}

impl Linker {
    /// Whether the linker reads the bitcode of a compiler with LLVM `llvm`. A linker of unknown
    /// version is tried: its own error would be clear.
    pub(crate) fn reads(&self, llvm: u32) -> bool {
        self.llvm.is_none_or(|own| own >= llvm)
    }

    /// Output of `--version`.
    ///
    /// # Errors
    /// If the linker cannot be run.
    pub(crate) fn version(&self) -> Result<String> {
        step::output(step::isolated(&self.program).arg("--version"))
    }
}

/// Lists every bpf-linker in `PATH`, and last the one that [`install`] has made.
pub(crate) fn find(workspace: &Workspace) -> Vec<Linker> {
    let mut programs = workspace::all_in_path("bpf-linker");
    programs.push(workspace.tools().join("bin/bpf-linker"));
    programs
        .into_iter()
        .filter(|program| program.is_file())
        .map(|program| Linker { llvm: shared_llvm(&program).ok().flatten(), program })
        .collect()
}

/// Finds the newest LLVM with development files that is installed in Debian's way, and that can
/// read the bitcode of LLVM `oldest`.
pub(crate) fn installed_llvm(oldest: u32) -> Option<u32> {
    BUILDABLE.rev().find(|&llvm| llvm >= oldest && prefix(llvm).join("bin/llvm-config").is_file())
}

/// Builds bpf-linker against Debian's LLVM `llvm`, under the target directory.
///
/// # Errors
/// If bpf-linker does not compile.
pub(crate) fn install(workspace: &Workspace, llvm: u32) -> Result<()> {
    let tools = workspace.tools();
    let mut command = step::isolated(&step::cargo());
    command
        .args(arguments(llvm, &tools))
        .arg("--quiet")
        // Without this variable, an older LLVM in PATH is found first.
        .env("LLVM_PREFIX", prefix(llvm));
    step::run(&format!("install bpf-linker {VERSION} for LLVM {llvm}"), &mut command)
        .context("install bpf-linker")
}

/// The shell command that does the same as [`install`].
pub(crate) fn command(llvm: u32) -> String {
    let arguments = arguments(llvm, Path::new("target/tools")).join(" ");
    format!("LLVM_PREFIX={} cargo {arguments}", prefix(llvm).display())
}

fn arguments(llvm: u32, tools: &Path) -> Vec<String> {
    let feature = format!("llvm-{llvm}");
    let tools = tools.display().to_string();
    let arguments = ["install", "bpf-linker", "--version", VERSION, "--locked"];
    let features = ["--no-default-features", "--features", &feature, "--root", &tools];
    arguments.into_iter().chain(features).map(str::to_owned).collect()
}

fn prefix(llvm: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{llvm}"))
}

/// The major version of the shared libLLVM that `program` is linked to.
fn shared_llvm(program: &Path) -> Result<Option<u32>> {
    let data = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
    let header = elf::FileHeader64::<Endianness>::parse(&*data)?;
    let endian = header.endian()?;
    let dynamic = header.sections(endian, &*data)?.dynamic_table(endian, &*data)?;
    let mut libraries = dynamic.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
    Ok(libraries.find_map(|entry| major(std::str::from_utf8(dynamic.string(entry).ok()?).ok()?)))
}

/// Major version in a name such as `libLLVM.so.22.1` or `libLLVM-14.so.1`.
fn major(library: &str) -> Option<u32> {
    let rest = library.strip_prefix("libLLVM")?;
    let rest = rest.strip_prefix(".so.").or_else(|| rest.strip_prefix('-'))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_from_a_library_name() {
        assert_eq!(major("libLLVM.so.22.1"), Some(22));
        assert_eq!(major("libLLVM-14.so.1"), Some(14));
        assert_eq!(major("libstdc++.so.6"), None);
        assert_eq!(major("libLLVM.so"), None);
    }

    #[test]
    fn an_older_llvm_is_refused_and_an_unknown_one_is_tried() {
        let linker = |llvm| Linker { program: PathBuf::new(), llvm };
        assert!(linker(Some(22)).reads(22));
        assert!(linker(Some(23)).reads(22));
        assert!(!linker(Some(21)).reads(22));
        assert!(linker(None).reads(22));
    }
}
