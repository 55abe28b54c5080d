//! `cargo xtask check`: everything that needs neither root nor a kernel with eBPF.

use anyhow::Result;

use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{ebpf, licences, step, targets};

/// Runs format, lints, documentation, licences, layers, and the unit and property tests.
/// [`crate::test`] runs the simulations.
///
/// # Errors
/// At the first step that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::default();
    steps.time("build-ebpf", || ebpf::build(workspace, false, false))?;
    all(workspace, &mut steps)?;
    steps.print();
    eprintln!("  {:>7.1} s  in all", steps.total().as_secs_f64());
    Ok(())
}

/// Runs the same checks as [`run`], as a part of a longer command that has built the eBPF objects.
///
/// # Errors
/// As [`run`].
pub(crate) fn all(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    lint(workspace, steps)?;
    unit_tests(workspace, steps, &[])
}

/// Runs the tests of the layers (which crate may name which), and the unit and property tests of
/// all crates.
///
/// # Errors
/// At the first crate or step with a test that fails.
pub(crate) fn unit_tests(workspace: &Workspace, steps: &mut Steps, filter: &[&str]) -> Result<()> {
    // xtask's tests check the layers. They run first because they find a wrong import in seconds.
    steps.cargo(workspace, "layers", &[&["test", "-p", "xtask", "--"], filter].concat())?;
    let others = targets::of(workspace, |package| !matches!(package, "sampler-tests" | "xtask"))?;
    let others = others.iter().filter(|target| !target.is_on_request);
    let names: Vec<String> = others.map(|target| format!("--test={}", target.name)).collect();
    let mut selection = vec!["--lib", "--bins"];
    selection.extend(names.iter().map(String::as_str));
    let programs = steps.time("build tests", || targets::build(workspace, &selection))?;
    steps.time("unit and property tests", || {
        let mut each = Steps::default();
        for program in programs.iter().filter(|program| !program.is_end_to_end()) {
            each.run_or_note(&program.name, program.command().args(filter));
        }
        each.verdict()
    })
}

/// Runs formatting, lints, documentation and licences.
fn lint(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    for (component, arguments) in [
        ("rustfmt", &["fmt", "--all", "--check"][..]),
        // `--all-targets` leaves out the tests that plain `cargo test` leaves out. The pattern
        // names those tests.
        ("clippy", &["clippy", "--workspace", "--all-targets", "--test=*", "--", "-D", "warnings"]),
    ] {
        let version = step::output(workspace.cargo().args([arguments[0], "--version"]));
        if version.is_ok() {
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
