//! Code whose file came late, is gone, or is not accessible.

use crate::case::{ALL, equals, rows};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::{Daemon, Workload, build, wait};
use std::fs;
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

/// Another program at the same path must not give its names to the old one.
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
fn programs_in_another_mount_namespace_are_named() -> Result<()> {
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

/// The links that a daemon's guardian holds; `None` while a thread of the guardian closes links.
fn links(daemon: &Daemon) -> Result<Option<usize>> {
    let guardian = daemon.guardian()?;
    let descriptors = fs::read_dir(format!("/proc/{guardian}/fdinfo"))?.flatten();
    let texts = descriptors.filter_map(|of| fs::read_to_string(of.path()).ok());
    let links = texts.filter(|text| text.contains("link_type:\tuprobe_multi")).count();
    let threads = fs::read_dir(format!("/proc/{guardian}/task"))?.count();
    Ok((threads == 1).then_some(links))
}

/// Programs that come one after another in one process, each with a C library of its own.
#[test]
fn files_of_replaced_programs_lose_their_links() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mapped = fs::read_to_string("/proc/self/maps")?;
    let libc = mapped.lines().find(|line| line.ends_with("/libc.so.6")).context("no libc")?;
    let libc = &libc[libc.find('/').context("no path")?..];
    let mut shell = Child::start("sh", &mut Command::new("sh"))?;
    let daemon = Daemon::start(&[shell.pid()], &[])?;
    let before = wait::until("the links by which prices were measured to end", || links(&daemon))?;
    ensure!(before > 0, "the kernel tells of no links");
    for number in 0..3 {
        let own = directory.path().join(number.to_string());
        fs::create_dir(&own)?;
        fs::copy(libc, own.join("libc.so.6"))?;
        let own = own.to_str().context("a path in UTF-8")?;
        // The next shell cannot read what this one has read of the input.
        shell.send(&format!("LD_LIBRARY_PATH={own} exec sh -c 'echo here; exec sh'"))?;
        shell.line()?;
        wait::until(&format!("probes in {own} alone"), || {
            let ps = daemon.json("ps")?;
            let allocators = ps["processes"][0]["allocators"].as_array().context("no list")?;
            let are_own = allocators.iter().all(|of| of.to_string().contains(own));
            let is_it = allocators.len() == 1 && are_own && links(&daemon)? == Some(before);
            Ok(is_it.then_some(()))
        })
        .with_context(|| format!("{before} links before: {}", daemon.log()))?;
    }
    shell.close_stdin();
    shell.wait()?;
    daemon.stop()
}
