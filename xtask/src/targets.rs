//! The test programs of the workspace: which there are, and how they are built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
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

/// Lists the integration tests of the packages that are wanted, sorted by name.
///
/// # Errors
/// If cargo cannot list them.
pub(crate) fn of(
    workspace: &Workspace,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<TestTarget>> {
    let mut command = workspace.cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let text = step::output(&mut command).context("list the packages")?;
    let metadata: Value =
        serde_json::from_str(&text).context("parse the output of cargo metadata")?;
    let mut targets = parse(&metadata, is_wanted);
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

/// A built test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Name of the target.
    pub(crate) name: String,
    /// The directory of its package.
    package: PathBuf,
    path: PathBuf,
    /// Whether it has integration tests, not the unit tests of a library or a program.
    is_integration: bool,
}

impl TestProgram {
    /// A command that runs the tests as `cargo test` does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.package);
        command
    }

    /// Whether this is an end-to-end test.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.is_integration && self.package.ends_with("tests")
    }
}

/// Builds the test programs that `selection`, arguments of `cargo test`, selects in the workspace.
///
/// The packages are always all: cargo would build the dependencies of each selection of packages
/// anew, since their features differ.
///
/// # Errors
/// If cargo cannot build them.
pub(crate) fn build(workspace: &Workspace, selection: &[&str]) -> Result<Vec<TestProgram>> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--no-run"]).args(selection);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let text = step::output(&mut command).context("build the tests")?;
    let programs = text.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?));
    let programs: Vec<_> = programs.collect();
    ensure!(!programs.is_empty(), "cargo names no test program");
    Ok(programs)
}

/// The test program that a message of cargo is about.
fn program(message: &Value) -> Option<TestProgram> {
    let target = &message["target"];
    (message["profile"]["test"] == true).then_some(())?;
    Some(TestProgram {
        name: target["name"].as_str()?.to_owned(),
        package: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        path: message["executable"].as_str()?.into(),
        is_integration: target["kind"][0] == "test",
    })
}

fn parse(metadata: &Value, is_wanted: impl Fn(&str) -> bool) -> Vec<TestTarget> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|of| of["name"].as_str().is_some_and(&is_wanted))
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
    fn programs_are_known_by_cargos_messages() {
        let message = |kind: &str, is_test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/w/tests/Cargo.toml",
                "target": { "kind": [kind], "name": "truth" }, "profile": { "test": is_test },
                "executable": executable,
            })
        };
        let found = program(&message("test", true, "/t/truth-1".into())).unwrap();
        assert!(found.is_end_to_end());
        assert_eq!(found.command().get_current_dir(), Some(Path::new("/w/tests")));
        assert!(!program(&message("lib", true, "/t/truth-2".into())).unwrap().is_end_to_end());
        assert_eq!(program(&message("bin", false, "/t/truth".into())), None);
        assert_eq!(program(&message("test", true, Value::Null)), None);
        assert_eq!(program(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    #[test]
    fn only_the_tests_of_wanted_packages_are_listed() {
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
        assert_eq!(
            parse(&metadata, |of| of == "a"),
            [target("laws", false), target("windows", true)]
        );
    }
}
