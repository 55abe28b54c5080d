//! `cargo xtask package`: a Debian package of the programs, the in-process sampler, the manual and
//! the service.
//!
//! `[package.metadata.deb]` in `sampler-daemon/Cargo.toml` lists the files and their paths.
//! cargo-deb makes the archive. The programs themselves write their manual pages and completions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::{ebpf, notices, packages, preload, step};

const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0", arguments: &[] };
/// Each program, its arguments for manual pages and completions, and the section of its pages.
const PROGRAMS: [(&str, &str, &str, &str); 2] =
    [("sampler", "man", "completions", "man1"), ("samplerd", "--man", "--completions", "man8")];

/// Builds the package, and prints its path.
///
/// # Errors
/// If a tool is missing and cannot be installed, or if a part cannot be built.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    packages::ensure(&[&packages::BUILD[..], &packages::PACKAGE].concat())?;
    ebpf::build(workspace, false, false)?;
    let programs = ["build", "--release", "--bins"];
    step::run("build", workspace.cargo().args(programs))?;
    preload::build(workspace)?;
    println!("{}", pack(workspace)?.display());
    Ok(())
}

/// [`build`], and the end-to-end test of the package.
///
/// # Errors
/// As [`build`]. Also without root, or if the test fails.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    packages::require_root("a Debian to install it in has namespaces", "package --test")?;
    packages::ensure(&packages::PACKAGE_TEST)?;
    build(workspace)?;
    let test = ["test", "-p", "sampler-tests", "--test=package", "--"];
    let mut cargo = workspace.cargo();
    step::run("test", cargo.args(test).args(["--include-ignored", "--test-threads=1"]))
}

/// Writes the files that come from the built programs.
fn generate(workspace: &Workspace) -> Result<()> {
    let release = workspace.target.join("release");
    let directory = release.join("package");
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("remove {}", directory.display()))?;
    }
    let libraries = notices::libraries(workspace)?;
    write(&directory.join("third-party-licences"), &notices::text(&libraries)?)?;
    write(&directory.join("sampler.cdx.json"), &notices::bill_of_materials(&libraries))?;
    write(&directory.join("changelog"), &changelog()?)?;
    for (name, man, completions, section) in PROGRAMS {
        let program = release.join(name);
        step::output(Command::new(&program).arg(man).arg(directory.join(section)))?;
        for (shell, file) in completion_files(name) {
            let script = step::output(Command::new(&program).args([completions, shell]))?;
            write(&directory.join(shell).join(file), &script)?;
        }
    }
    // Debian's policy requires compressed manual pages and changelogs.
    let mut gzip = Command::new("gzip");
    gzip.current_dir(&directory).args(["--best", "--no-name", "--recursive"]);
    step::output(gzip.args(["changelog", "man1", "man8"])).map(drop)
}

/// Names by which each shell finds the completions of a program.
fn completion_files(program: &str) -> [(&'static str, String); 3] {
    [
        ("bash", program.to_owned()),
        ("zsh", format!("_{program}")),
        ("fish", format!("{program}.fish")),
    ]
}

/// The changelog in Debian's format, which refers to the changelog for people.
fn changelog() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let date = step::output(Command::new("date").arg("--rfc-email"))?;
    let maintainer = "The sampler developers <developers@sampler.invalid>";
    Ok(format!(
        "sampler ({version}) unstable; urgency=medium\n\n  \
         * Version {version}: see /usr/share/doc/sampler/CHANGELOG.md.\n\n \
         -- {maintainer}  {date}"
    ))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("a file without a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Packs the built files. Returns the package's path.
///
/// # Errors
/// If cargo-deb cannot be installed, or fails.
pub(crate) fn pack(workspace: &Workspace) -> Result<PathBuf> {
    generate(workspace)?;
    let program = CARGO_DEB.path(workspace)?;
    let mut command = Command::new(&program);
    command
        .current_dir(&workspace.root)
        .env("CARGO_TARGET_DIR", &workspace.target)
        .args(["--no-build", "--no-strip", "--package", "sampler-daemon", "--output"])
        .arg(workspace.target.join("debian/"));
    let path = PathBuf::from(step::output(&mut command).context("cargo-deb")?.trim_end());
    ensure!(path.is_file(), "cargo-deb made no package at {}", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_names_this_version_and_a_day() {
        let text = changelog().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.starts_with(&format!("sampler ({version}) unstable")), "{text}");
        let last = text.lines().last().unwrap();
        // The format requires one space before the maintainer and two spaces after.
        assert!(last.starts_with(" -- The sampler developers <"), "{text}");
        let date = last.split_once(">  ").unwrap().1;
        assert_eq!(date.split(' ').count(), 6, "{date}");
    }
}
