//! CPython's versions as Debian's suites have them, for the end-to-end tests: each with its own C
//! library in the folder `pythons/VERSION` of the target directory. The machine stays unchanged.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::suites::{Suite, Suites, main_archive};
use crate::workspace::Workspace;

/// A version of CPython, the suite that has it, and its packages.
struct Python {
    version: &'static str,
    suite: Suite,
    packages: &'static [&'static str],
}

/// The versions.
const PYTHONS: [Python; 4] = [
    Python {
        version: "3.9",
        suite: main_archive("bullseye"),
        packages: &["python3.9-minimal", "libpython3.9-stdlib"],
    },
    Python {
        version: "3.11",
        suite: main_archive("bookworm"),
        // With the debug files of this version and of its C library.
        packages: &["python3.11-minimal", "libpython3.11-stdlib", "python3.11-dbg", "libc6-dbg"],
    },
    Python {
        version: "3.13",
        suite: main_archive("trixie"),
        packages: &["python3.13-minimal", "libpython3.13-stdlib"],
    },
    Python {
        version: "3.14",
        suite: main_archive("sid"),
        packages: &["python3.14-minimal", "libpython3.14-stdlib"],
    },
];

/// Fetches and unpacks the versions that are not there yet. A version that cannot be had is named,
/// and the tests name it again.
///
/// # Errors
/// If the folder cannot be made.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let folder = workspace.target.join("pythons");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    for python in &PYTHONS {
        let root = folder.join(python.version);
        if root.is_dir() {
            continue;
        }
        if let Err(error) = fetch(python, &folder, &root) {
            eprintln!("NOT TESTED: Python {} cannot be had: {error:#}", python.version);
        }
    }
    Ok(())
}

fn fetch(python: &Python, folder: &Path, root: &Path) -> Result<()> {
    let scratch = folder.join(format!("{}.part", python.version));
    if scratch.is_dir() {
        fs::remove_dir_all(&scratch).context("remove what an interrupted run left")?;
    }
    let unpacked = scratch.join("root");
    let suites = Suites::open(&scratch, &[python.suite])?;
    suites.unpack_whole(python.packages, &unpacked)?;
    // The folder gets its name last, so that an interrupted fetch is repeated.
    fs::rename(&unpacked, root).with_context(|| format!("make {}", root.display()))?;
    fs::remove_dir_all(&scratch).context("remove package lists")
}
