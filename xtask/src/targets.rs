//! The integration tests of a package, as `cargo metadata` lists them.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::step;
use crate::workspace::Workspace;

/// A file (or folder) of integration tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestTarget {
    /// Name to pass to `--test`.
    pub(crate) name: String,
    /// Whether `cargo test` skips the target unless it is named (`test = false` in `Cargo.toml`).
    pub(crate) is_on_request: bool,
}

/// Lists the integration tests of `package`, sorted by name.
///
/// # Errors
/// If cargo cannot list them.
pub(crate) fn of(workspace: &Workspace, package: &str) -> Result<Vec<TestTarget>> {
    let mut command = workspace.cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let text = step::output(&mut command).context("list the packages")?;
    let metadata: Value =
        serde_json::from_str(&text).context("parse the output of cargo metadata")?;
    let mut targets = parse(&metadata, package);
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

fn parse(metadata: &Value, package: &str) -> Vec<TestTarget> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|of| of["name"] == package)
        .flat_map(|of| of["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let target = |target: &Value| TestTarget {
        name: target["name"].as_str().unwrap_or_default().to_owned(),
        is_on_request: target["test"] == false,
    };
    tests.map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tests_of_the_package_are_listed() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "targets": [
                { "name": "a", "kind": ["lib"], "test": true },
                { "name": "laws", "kind": ["test"], "test": true },
                { "name": "windows", "kind": ["test"], "test": false },
            ] },
            { "name": "b", "targets": [{ "name": "other", "kind": ["test"], "test": true }] },
        ] });
        let target =
            |name: &str, is_on_request| TestTarget { name: name.to_owned(), is_on_request };
        assert_eq!(parse(&metadata, "a"), [target("laws", false), target("windows", true)]);
    }
}
