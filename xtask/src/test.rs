//! `cargo xtask test`: sets a machine up and runs every check and every test on it.
//!
//! The quick verdicts come first: `check`, then the simulations, then the end-to-end tests.
//! Some end-to-end files run three at a time, the others one after another.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::steps::Steps;
use crate::targets::{self, TestProgram};
use crate::workspace::Workspace;
use crate::{check, ebpf, fleet, fuzz, miri, package, packages, preload, pythons, simulate};

/// Number of slowest end-to-end files that are printed.
const SLOWEST_PRINTED: usize = 12;
/// Environment variable for long tests (`tests/tests/inject/cycles`): how often the sampler is
/// injected and ejected.
const LONG: (&str, &str) = ("SAMPLER_TEST_CYCLES", "200");

/// The end-to-end file whose ignored tests ask Spark.
const FLEET: &str = "fleet";
/// Number of end-to-end files that run at a time, of those that may. They wait more than they
/// compute: `export` leaves two CPUs idle for 89 % of its time.
const LANES: usize = 3;
/// End-to-end files that may run beside another one, slowest first. Their daemons probe processes
/// of their own only, and they measure no time. Probes of `--all` and `--follow` slow every process
/// of the machine, so such files run alone. So does `gdb`: it would show the return probes of
/// another samplerd.
const BESIDE_ANOTHER: &[&str] = &[
    "export",
    FLEET,
    "strategies",
    "truth",
    "estimators",
    "web",
    "python",
    "limits",
    "debuginfod",
    "debug_data",
    "stack_cache",
    "leaks",
    "windows",
    "metrics",
    "formats",
    "allocators",
    "engines",
    "sources",
    "rates",
    "api",
    "runtimes",
    "documented",
    "pictures",
    "progress",
    "select",
    "top",
    "bad_input",
    "unheard_library",
];

/// Tests to run besides the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Run only the tests whose names contain this, and no lints.
    pub(crate) filter: Option<String>,
    /// Run `cargo xtask simulate`, too.
    pub(crate) simulations: bool,
    /// Run the tests that are ignored otherwise, too, and more rounds of others.
    pub(crate) long: bool,
    /// Run the tests that ask Spark, too.
    pub(crate) fleet: bool,
}

impl Selection {
    /// Whether the ignored tests of an end-to-end file run.
    fn includes_ignored(&self, file: &str) -> bool {
        if file == FLEET { self.fleet } else { self.long }
    }
}

/// Runs everything that is selected.
///
/// # Errors
/// At the first check that fails, or after the last end-to-end file if one of them failed.
/// A missing component is reported and does not pass.
pub(crate) fn run(workspace: &Workspace, selection: &Selection) -> Result<()> {
    packages::require_root("the end-to-end tests load eBPF programs", "test")?;
    workspace.require_space()?;
    let filter: Vec<&str> = selection.filter.as_deref().into_iter().collect();
    let mut steps = Steps::default();
    steps.time("packages", || packages::ensure(&packages::all(selection.long)))?;
    steps.time("pythons", || pythons::ensure(workspace))?;
    steps.time("SQL engines", || fleet::ensure(workspace, selection.fleet))?;
    steps.time("build-ebpf", || ebpf::build(workspace, false, false))?;
    steps.cargo(workspace, "build", &["build", "--release", "--bins"])?;
    steps.time("build-preload", || preload::build(workspace))?;
    if selection.long {
        steps.time("package", || package::pack(workspace))?;
    }
    match filter.is_empty() {
        true => check::all(workspace, &mut steps)?,
        false => check::unit_tests(workspace, &mut steps, &filter)?,
    }
    simulate(workspace, &mut steps, &filter)?;
    if selection.simulations {
        steps.time("simulate", || simulate::run(workspace, simulate::SEED, simulate::RUNS))?;
    }
    let build = || targets::build(workspace, &["--tests"]);
    let programs = steps.time("build end-to-end tests", build)?;
    steps.print();
    if selection.long && filter.is_empty() {
        fuzz::run(workspace, &[], fuzz::SECONDS)?;
        // Not every nightly toolchain has Miri.
        match miri::toolchain() {
            Ok(toolchain) => miri::run(workspace, &toolchain)?,
            Err(error) => eprintln!("  NOT RUN    miri: {error}"),
        }
    }
    end_to_end(&programs, selection, &filter)
}

/// Runs the tests of the estimators by simulation.
fn simulate(workspace: &Workspace, steps: &mut Steps, filter: &[&str]) -> Result<()> {
    let targets = targets::of(workspace, |package| package == "sampler-common")?;
    let names: Vec<String> = targets
        .iter()
        .filter(|target| target.is_on_request)
        .map(|target| format!("--test={}", target.name))
        .collect();
    anyhow::ensure!(!names.is_empty(), "sampler-common has no simulations");
    let mut arguments = vec!["test", "-p", "sampler-common", "--no-fail-fast"];
    arguments.extend(names.iter().map(String::as_str));
    arguments.push("--");
    arguments.extend(filter);
    steps.cargo(workspace, "simulations", &arguments)
}

/// Runs the end-to-end tests, one test of a file at a time: all tests share one kernel. Files of
/// [`BESIDE_ANOTHER`] run [`LANES`] at a time, then every other file runs alone.
fn end_to_end(programs: &[TestProgram], selection: &Selection, filter: &[&str]) -> Result<()> {
    let mut files: Vec<&TestProgram> =
        programs.iter().filter(|program| program.is_end_to_end()).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let (beside, alone): (Vec<&TestProgram>, Vec<_>) =
        files.iter().partition(|file| BESIDE_ANOTHER.contains(&file.name.as_str()));
    let command = |program: &TestProgram| {
        let mut command = program.command();
        command.arg("--test-threads=1").args(filter);
        if selection.includes_ignored(&program.name) {
            command.arg("--include-ignored");
        }
        if selection.long {
            command.env(LONG.0, LONG.1);
        }
        command
    };
    let in_order = BESIDE_ANOTHER.iter().map(|name| {
        let file = beside.iter().find(|file| file.name == *name);
        file.with_context(|| format!("no end-to-end file is called {name}"))
    });
    let in_order = in_order.collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let mut steps = Steps::default();
    let beside = in_order.iter().map(|file| (file.name.as_str(), command(file))).collect();
    steps.run_beside(LANES, beside);
    for file in alone {
        steps.run_or_note(&file.name, &mut command(file));
    }
    steps.print_slowest(SLOWEST_PRINTED);
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("  {seconds:>7.1} s  all {} end-to-end files", files.len());
    if !(selection.long && selection.fleet) {
        eprintln!(
            "  NOT RUN    tests that are said to be ignored above (cargo xtask test --long --fleet)"
        );
    }
    steps.verdict()
}
