//! Checks that `deny.toml` allows every dependency's licence.
//!
//! The rule is that of `cargo deny check licenses sources`, which need not be installed for this
//! check.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step;
use crate::workspace::Workspace;

const LIST: &str = "deny.toml";
/// The only allowed source of dependencies. The repository's own packages have no source.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the dependencies of the workspace and of the eBPF package. Returns their number.
///
/// # Errors
/// If a dependency's licence is missing or not allowed, or its source is not crates.io. The text
/// lists all such dependencies.
pub(crate) fn check(workspace: &Workspace) -> Result<usize> {
    let list = std::fs::read_to_string(workspace.root.join(LIST))
        .with_context(|| format!("read {LIST}"))?;
    let allowed = allowed(&list);
    if allowed.is_empty() {
        bail!("{LIST}: found no `allow = [` list with one licence per line");
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for manifest in ["Cargo.toml", "sampler-ebpf/Cargo.toml"] {
        let metadata = metadata(&workspace.root.join(manifest))?;
        let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
        for package in packages.iter().filter(|package| !package["source"].is_null()) {
            count += 1;
            wrong.extend(objection(package, &allowed));
        }
    }
    if !wrong.is_empty() {
        bail!("dependencies that {LIST} does not allow:\n  {}", wrong.join("\n  "));
    }
    Ok(count)
}

/// What `cargo metadata` says of a workspace.
///
/// # Errors
/// If cargo fails.
pub(crate) fn metadata(manifest: &Path) -> Result<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(step::cargo());
    command
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
        .arg("--manifest-path")
        .arg(manifest);
    let text = step::output(&mut command)
        .with_context(|| format!("list the dependencies of {}", manifest.display()))?;
    serde_json::from_str(&text).context("parse the output of cargo metadata")
}

/// The objection to a package of `cargo metadata`, if there is one.
fn objection(package: &Value, allowed: &[&str]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    let version = package["version"].as_str().unwrap_or("?");
    let source = package["source"].as_str().unwrap_or_default();
    if source != REGISTRY {
        return Some(format!("{name} {version}: source {source}"));
    }
    match package["license"].as_str() {
        Some(licence) if satisfied(licence, allowed) => None,
        Some(licence) => Some(format!("{name} {version}: {licence}")),
        None => Some(format!("{name} {version}: states no licence")),
    }
}

/// Parses the strings of the list `allow` in `[licenses]`.
fn allowed(list: &str) -> Vec<&str> {
    list.lines()
        .skip_while(|line| line.trim() != "[licenses]")
        .skip_while(|line| line.trim() != "allow = [")
        .skip(1)
        .take_while(|line| line.trim() != "]")
        .filter_map(|line| line.split('"').nth(1))
        .collect()
}

/// Whether the allowed licences satisfy an SPDX expression (annex D of the SPDX specification 2.3),
/// or the older form with slashes.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) == Some(true) && rest.is_empty()
}

/// `all (OR all)*`; `None`: the text is no expression.
fn any(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut result = all(words, allowed)?;
    while take(words, "OR") {
        result |= all(words, allowed)?;
    }
    Some(result)
}

/// `one (AND one)*`
fn all(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut result = one(words, allowed)?;
    while take(words, "AND") {
        result &= one(words, allowed)?;
    }
    Some(result)
}

/// `licence`, `licence WITH exception` or `( any )`
fn one(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    if take(words, "(") {
        let result = any(words, allowed);
        return if take(words, ")") { result } else { None };
    }
    let (licence, rest) = words.split_first()?;
    *words = rest;
    if take(words, "WITH") {
        // An exception only permits more.
        *words = words.split_first()?.1;
    }
    Some(allowed.contains(licence))
}

fn take(words: &mut &[&str], word: &str) -> bool {
    match words.split_first() {
        Some((first, rest)) if *first == word => {
            *words = rest;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: [&str; 3] = ["MIT", "Apache-2.0", "Unicode-3.0"];

    #[test]
    fn licence_expressions_are_evaluated() {
        for (expression, wanted) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT/GPL-3.0", true),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND OpenSSL", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            // AND binds more tightly than OR.
            ("MIT OR Apache-2.0 AND OpenSSL", true),
            ("OpenSSL AND Apache-2.0 OR Zlib", false),
            ("", false),
            ("MIT MIT", false),
            ("(MIT", false),
            ("MIT OR", false),
        ] {
            assert_eq!(satisfied(expression, &ALLOWED), wanted, "{expression}");
        }
    }

    #[test]
    fn the_list_is_read_from_its_own_section_only() {
        let list = "[other]\nallow = [\n    \"no\",\n]\n[licenses]\n# why\nallow = [\n    \"MIT\",\n    \"ISC\",\n]\nx = [\n\"no\",\n]\n";
        assert_eq!(allowed(list), ["MIT", "ISC"]);
    }

    #[test]
    fn foreign_sources_and_missing_licences_are_objected_to() {
        let package = |source: &str, licence: Value| serde_json::json!({ "name": "a", "version": "1", "source": source, "license": licence });
        assert_eq!(objection(&package(REGISTRY, "MIT".into()), &ALLOWED), None);
        assert!(objection(&package(REGISTRY, Value::Null), &ALLOWED).is_some());
        assert!(objection(&package("git+https://example.com", "MIT".into()), &ALLOWED).is_some());
    }
}
