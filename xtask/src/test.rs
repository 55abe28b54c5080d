//! `cargo xtask test`: sets a machine up and runs every check and every test on it.
//!
//! The quick verdicts come first. The end-to-end tests come last, so that the output ends with
//! cargo's own lines about them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{ebpf, licences, packages, preload, step};

/// Runs everything; with a filter, only the tests whose names contain it.
///
/// # Errors
/// At the first step that fails; a component that is missing is named and does not pass.
pub(crate) fn run(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    packages::require_root("the end-to-end tests load eBPF programs", "test")?;
    let mut steps = Steps::default();
    steps.time("packages", || packages::ensure(&packages::all()))?;
    steps.time("build-ebpf", || ebpf::build(workspace, false, false))?;
    steps.cargo(workspace, "build", &["build", "--release", "--bins"])?;
    steps.time("build-preload", || preload::build(workspace))?;
    if filter.is_none() {
        lint(workspace, &mut steps)?;
    }
    let filter: Vec<&str> = filter.into_iter().collect();
    // Which layers may know of what: wrong in a moment, where what follows takes half an hour.
    let own = ["test", "-p", "xtask", "--"];
    steps.cargo(workspace, "xtask's tests", &[&own, filter.as_slice()].concat())?;
    let others = ["--exclude", "sampler-tests", "--exclude", "xtask", "--no-fail-fast", "--"];
    let unit = [&["test", "--workspace"], others.as_slice(), filter.as_slice()];
    steps.cargo(workspace, "unit tests", &unit.concat())?;
    // Built before the list of durations is printed, so that the tests' lines are the last ones.
    steps.cargo(
        workspace,
        "build end-to-end tests",
        &["test", "-p", "sampler-tests", "--no-run"],
    )?;
    steps.print();
    // One at a time: they measure, they share one kernel, and probes on libc are seen by all.
    let end_to_end = ["test", "-p", "sampler-tests", "--no-fail-fast", "--", "--test-threads=1"];
    let mut command = workspace.cargo();
    command.args(end_to_end).args(filter);
    let status = command.status().context("start cargo")?;
    anyhow::ensure!(status.success(), "end-to-end tests: cargo ended with {status}");
    Ok(())
}

/// Formatting, lints, documentation, licences.
fn lint(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    for (component, arguments) in [
        ("rustfmt", &["fmt", "--all", "--check"][..]),
        ("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ] {
        let asked = step::output(workspace.cargo().args([arguments[0], "--version"]));
        if asked.is_ok() {
            steps.cargo(workspace, component, arguments)?;
        } else {
            eprintln!(
                "WARNING: {component} did NOT run: this toolchain lacks it \
                 (rustup component add {component})"
            );
            steps.skip(component);
        }
    }
    let mut document = workspace.cargo();
    document
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings");
    steps.time("doc", || step::run("doc", &mut document))?;
    let count = steps.time("licences", || licences::check(workspace))?;
    eprintln!("    licences of {count} dependencies are allowed");
    Ok(())
}

/// How long each step took.
#[derive(Default)]
struct Steps(Vec<(String, Option<Duration>)>);

impl Steps {
    fn time<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = step().with_context(|| name.to_owned())?;
        self.0.push((name.to_owned(), Some(started.elapsed())));
        Ok(result)
    }

    fn cargo(&mut self, workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<()> {
        let mut command = workspace.cargo();
        command.args(arguments);
        let started = Instant::now();
        step::run(name, &mut command)?;
        self.0.push((name.to_owned(), Some(started.elapsed())));
        Ok(())
    }

    fn skip(&mut self, name: &str) {
        self.0.push((name.to_owned(), None));
    }

    fn print(&self) {
        eprintln!("\nsteps so far:");
        for (name, duration) in &self.0 {
            match duration {
                Some(duration) => eprintln!("  {:>7.1} s  {name}", duration.as_secs_f64()),
                None => eprintln!("  NOT RUN    {name}"),
            }
        }
        eprintln!("\n==> end-to-end tests, one at a time");
    }
}
