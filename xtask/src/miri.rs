//! `cargo xtask miri`: runs the unit tests of the lock-free tables and of the code that eBPF, the
//! in-process sampler and samplerd share, by Miri.
//!
//! Miri interprets the tests. It reports undefined behaviour, and data races that no processor has
//! shown yet.

use anyhow::{Context as _, Result};

use crate::step;
use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;

/// Packages, and the modules whose tests are run: those of atomics and of layouts.
///
/// The other modules of the in-process sampler need system calls in assembly, and an allocator's
/// symbols. Miri has neither. Tests of arithmetic take Miri minutes, and have nothing for it to
/// find.
const MODULES: [(&str, &[&str]); 2] = [
    ("sampler-common", &["wire::", "counting::switch::", "sampling::external::"]),
    ("sampler-preload", &["table::", "filter::tests::", "limit::"]),
];
/// Cases of each property test. Miri is some thousand times slower than the processor.
const CASES: &str = "4";
/// Tests of the clock and of random seeds ask the system. The tables have no `unsafe` code, so
/// their references need no check of aliasing, which takes minutes for each.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-disable-stacked-borrows";

/// A toolchain with Miri.
///
/// # Errors
/// If there is none.
pub(crate) fn toolchain() -> Result<Toolchain> {
    let mut all = toolchain::find().into_iter();
    let found = all.find(|of| of.cargo.with_file_name("cargo-miri").is_file());
    found.context("no toolchain has it (rustup component add miri rust-src --toolchain nightly)")
}

/// Runs the tests.
///
/// # Errors
/// If a test fails, or if Miri reports undefined behaviour.
pub(crate) fn run(workspace: &Workspace, toolchain: &Toolchain) -> Result<()> {
    for (package, modules) in MODULES {
        let mut command = step::isolated(&toolchain.cargo);
        command.current_dir(&workspace.root).args(["miri", "test", "--lib", "-p", package]);
        command.arg("--target-dir").arg(workspace.target.join("miri"));
        command.env("MIRIFLAGS", FLAGS).env("PROPTEST_CASES", CASES);
        command.arg("--").args(modules);
        step::run(&format!("miri {package}"), &mut command)?;
    }
    Ok(())
}
