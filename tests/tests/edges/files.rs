//! Code whose file came late, is gone, or is out of sight.

use crate::case::{ALL, equals, rows};
use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_library_loaded_later_is_named() -> Result<()> {
    let library = build::compile("library.c", &["-shared", "-fPIC"])?;
    let library = library.to_str().context("path is not UTF-8")?;
    rows(&["dlopen", library]).map(|(case, _)| case)?.end()
}

/// Copies the workload to `directory` and starts it there.
fn copied(directory: &Path) -> Result<(Workload, PathBuf)> {
    let program = directory.join("moved");
    std::fs::copy(build::compile("edges.c", &[])?, &program).context("copy the workload")?;
    Ok((Workload::start_program(&program, &["keep", "10"])?, program))
}

fn names_its_functions(mut workload: Workload) -> Result<()> {
    let daemon = Daemon::start(&[workload.pid()], ALL)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("live", &[])?;
    let function = truth.function("many_kept")?;
    equals("many_kept", &profile.row("many_kept"), &function.alloc, &function.live)
        .with_context(|| profile.folded())?;
    let stack = profile.stacks_of("many_kept").next().context("no stack")?;
    ensure!(stack.contains("main"), "{:?}", stack.frames);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_deleted_program_keeps_its_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (workload, program) = copied(directory.path())?;
    std::fs::remove_file(program)?;
    names_its_functions(workload)
}

/// Another program under the same path must not lend its names.
#[test]
fn a_replaced_program_keeps_its_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (workload, program) = copied(directory.path())?;
    std::fs::remove_file(&program)?;
    std::fs::copy(build::compile("truth.c", &[])?, &program)?;
    names_its_functions(workload)
}

/// A program that exists only in its own mount namespace.
#[test]
fn another_mount_namespace() -> Result<()> {
    let program = build::compile("edges.c", &[])?;
    let directory = tempfile::tempdir()?;
    let script = format!(
        "mount -t tmpfs none {dir} && cp {program} {dir}/inside && exec {dir}/inside keep 10",
        dir = directory.path().display(),
        program = program.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    names_its_functions(Workload::spawn("a namespace", &mut command)?)
}
