//! The libraries in the package's programs: their licences, which must be passed on with the
//! programs, and the list of them for tools that look for known weaknesses (CycloneDX).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::workspace::Workspace;
use crate::{licences, step};

/// The packaged crates by manifest: the eBPF program is part of samplerd.
const CONTAINED: [(&str, &[&str]); 2] = [
    ("Cargo.toml", &["sampler-daemon", "sampler-inject", "sampler-preload"]),
    ("sampler-ebpf/Cargo.toml", &["sampler-ebpf"]),
];
/// Beginnings of the names of licence files, in upper case.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
const LINE: &str = "------------------------------------------------------------------------";

/// A library that the programs contain.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Library {
    name: String,
    version: String,
    /// SPDX expression.
    licence: String,
    directory: PathBuf,
}

/// The libraries that the programs contain, sorted by name and version.
///
/// # Errors
/// If cargo does not list the libraries.
pub(crate) fn libraries(workspace: &Workspace) -> Result<BTreeSet<Library>> {
    let mut libraries = BTreeSet::new();
    for (manifest, packages) in CONTAINED {
        let manifest = workspace.root.join(manifest);
        let linked = linked(&manifest, packages)?;
        let metadata = licences::metadata(&manifest)?;
        let all = metadata["packages"].as_array().context("cargo metadata: no packages")?;
        for package in all.iter().filter(|package| !package["source"].is_null()) {
            let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
            let (name, version) = (field("name"), field("version"));
            if linked.contains(&format!("{name} {version}")) {
                let manifest = PathBuf::from(field("manifest_path"));
                let directory = manifest.parent().context("no directory")?.to_owned();
                libraries.insert(Library { name, version, licence: field("license"), directory });
            }
        }
    }
    Ok(libraries)
}

/// Lists each library with its version and licence, and then each licence text once.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn text(libraries: &BTreeSet<Library>) -> Result<String> {
    let mut list = BTreeSet::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Library { name, version, licence, directory } in libraries {
        list.insert(format!("{name} {version}: {licence}"));
        for text in licences_in(directory)? {
            texts.entry(text).or_default().insert(format!("{name} {version}"));
        }
    }
    Ok(joined(&list, &texts))
}

/// The libraries as a CycloneDX document: <https://cyclonedx.org/docs/1.5/json/>.
pub(crate) fn bill_of_materials(libraries: &BTreeSet<Library>) -> String {
    let component = |Library { name, version, licence, .. }: &Library| {
        json!({
            "type": "library", "name": name, "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": licence }],
        })
    };
    let components: Vec<_> = libraries.iter().map(component).collect();
    let sampler =
        json!({ "type": "application", "name": "sampler", "version": env!("CARGO_PKG_VERSION") });
    let document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": sampler }, "components": components,
    });
    format!("{document:#}\n")
}

fn joined(list: &BTreeSet<String>, texts: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut all = "Libraries that the programs of this package contain:\n\n".to_owned();
    all.extend(list.iter().map(|line| format!("{line}\n")));
    for (text, names) in texts {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        all += &format!("\n{LINE}\n{}\n{LINE}\n\n{text}\n", names.join(", "));
    }
    all
}

/// Name and version of every library that is linked into the packages of a workspace.
fn linked(manifest: &Path, packages: &[&str]) -> Result<BTreeSet<String>> {
    let mut command = Command::new(step::cargo());
    command.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--manifest-path"]);
    command.arg(manifest).args(["--target", "x86_64-unknown-linux-gnu"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let tree = step::output(&mut command)
        .with_context(|| format!("list what {} links", manifest.display()))?;
    Ok(tree.lines().filter_map(name_and_version).collect())
}

/// The name and version in a line of `cargo tree`, such as `aya v0.14.0 (*)`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// The texts of all licence files below a directory.
fn licences_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            found.extend(licences_in(&path)?);
            continue;
        }
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && !name.ends_with(".RS") {
            let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            found.push(String::from_utf8_lossy(&text).trim().replace('\r', ""));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn lines_of_cargo_tree_are_parsed() {
        let names = ["aya v0.14.0", "x v0.2.0 (/here) (*)", ""].map(name_and_version);
        assert_eq!(names, [Some("aya 0.14.0".into()), Some("x 0.2.0".into()), None]);
    }

    #[test]
    fn every_library_is_listed_and_the_texts_of_most_are_there() {
        let libraries = libraries(&Workspace::locate().unwrap()).unwrap();
        let text = text(&libraries).unwrap();
        for library in ["aya 0.14", "blazesym 0.2", "aya-ebpf 0.2", "libmimalloc-sys"] {
            assert!(text.contains(&format!("\n{library}")), "{library}");
        }
        assert!(text.contains("Microsoft Corporation, Daan Leijen"), "mimalloc's own");
        let bill: Value = serde_json::from_str(&bill_of_materials(&libraries)).unwrap();
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), libraries.len());
        let is_aya = |of: &&Value| of["purl"].as_str().unwrap().starts_with("pkg:cargo/aya@0.14");
        let aya = components.iter().find(is_aya).unwrap();
        assert_eq!(aya["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
