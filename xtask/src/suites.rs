//! Packages of Debian's suites, fetched into a separate folder. The machine's own packages and
//! lists stay unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

const ARCHIVE: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

/// A suite that packages come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    archive: &'static str,
    name: &'static str,
}

/// A suite of the main archive.
pub(crate) const fn main_archive(name: &'static str) -> Suite {
    Suite { archive: ARCHIVE, name }
}

/// All suites.
pub(crate) const ALL: [Suite; 8] = [
    main_archive("bullseye"),
    Suite { archive: SECURITY, name: "bullseye-security" },
    main_archive("bookworm"),
    Suite { archive: SECURITY, name: "bookworm-security" },
    main_archive("trixie"),
    main_archive("forky"),
    main_archive("sid"),
    main_archive("experimental"),
];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A folder with the package lists of suites.
pub(crate) struct Suites {
    folder: PathBuf,
}

impl Suites {
    /// Creates the folder and fetches the lists.
    pub(crate) fn open(folder: &Path, suites: &[Suite]) -> Result<Suites> {
        for part in ["state/lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(folder.join(part)).context("make a folder for packages")?;
        }
        let line = |Suite { archive, name }: &Suite| {
            format!("deb [signed-by={KEYRING}] {archive} {name} main\n")
        };
        let sources: String = suites.iter().map(line).collect();
        let suites = Suites { folder: folder.to_owned() };
        fs::write(folder.join("sources.list"), sources)?;
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("apt.conf"), suites.configuration())?;
        step::run(
            "lists of Debian's suites",
            suites.apt("apt-get").arg("--quiet=2").arg("update"),
        )?;
        Ok(suites)
    }

    fn configuration(&self) -> String {
        let at = |part: &str| self.folder.join(part).display().to_string();
        format!(
            "Dir::State \"{}\";\nDir::State::status \"{}\";\nDir::Cache \"{}\";\n\
             Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Sandbox::User \"root\";\n",
            at("state"),
            at("status"),
            at("cache"),
            at("sources.list"),
        )
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf"));
        command
    }

    /// Lists the versions of a package in all suites.
    pub(crate) fn versions(&self, package: &str) -> Result<Vec<String>> {
        let table = step::output(self.apt("apt-cache").args(["madison", package]))?;
        let version = |line: &str| line.split('|').nth(1).map(|version| version.trim().to_owned());
        let mut versions: Vec<String> = table.lines().filter_map(version).collect();
        versions.sort_unstable();
        versions.dedup();
        Ok(versions)
    }

    /// Fetches and unpacks a package. Returns the folder of its files.
    pub(crate) fn unpack(&self, package: &str, version: &str) -> Result<PathBuf> {
        let folder = self.folder.join("packages").join(format!("{package}={version}"));
        let unpacked = folder.join("unpacked");
        if unpacked.is_dir() {
            return Ok(unpacked);
        }
        fs::create_dir_all(&folder).context("make a folder for a package")?;
        let name = format!("{package}={version}");
        let mut download = self.apt("apt-get");
        download.args(["--quiet=2", "download", &name]).current_dir(&folder);
        step::run(&format!("fetch {name}"), &mut download)?;
        let archive = fs::read_dir(&folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("find the archive of {name}"))?;
        step::output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&unpacked))?;
        Ok(unpacked)
    }

    /// Fetches packages and all that they depend on, and unpacks all of them into `root`.
    pub(crate) fn unpack_whole(&self, packages: &[&str], root: &Path) -> Result<()> {
        let mut download = self.apt("apt-get");
        download.args(["--quiet=2", "--yes", "--no-install-recommends", "--download-only"]);
        download.arg("install").args(packages);
        step::run(&format!("fetch {}", packages.join(" ")), &mut download)?;
        for entry in fs::read_dir(self.folder.join("cache/archives"))? {
            let archive = entry?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                step::output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(root))?;
            }
        }
        Ok(())
    }
}
