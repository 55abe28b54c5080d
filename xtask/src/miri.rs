//! `cargo xtask miri`: runs the unit tests of the lock-free tables and of the code that eBPF, the
//! in-process sampler and samplerd share, by Miri.
//!
//! Miri interprets the tests. It reports undefined behaviour, and data races that no processor has
//! shown yet.

use anyhow::{Context as _, Result};

use crate::step;
use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;

/// Packages, and the modules whose tests are run.
///
/// The other modules of the in-process sampler need system calls in assembly, and an allocator's
/// symbols. Miri has neither.
const MODULES: [(&str, &[&str]); 2] = [
    ("sampler-common", &["wire", "sampling", "counting", "counters", "share", "limits"]),
    ("sampler-preload", &["table", "filter", "interval", "limit", "weight"]),
];
/// Cases of each property test. Miri is some thousand times slower than the processor.
const CASES: &str = "4";

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
        // Tests of the clock and of random seeds ask the system.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", CASES);
        command.arg("--").args(modules.iter().map(|module| format!("{module}::")));
        step::run(&format!("miri {package}"), &mut command)?;
    }
    Ok(())
}
