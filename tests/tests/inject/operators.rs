//! The injected sampler with allocators that have C++ operators of their own. Every allocation and
//! every free is sampled, and exceptions pass through.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build, inject, preload};
use std::process::Command;

/// Every allocation is sampled.
const EVERYTHING: [&str; 5] =
    ["--inject", "--interval", "1", "--max-samples-per-second", "unlimited"];

/// A program with a preloaded allocator. `None` stands for glibc's allocator with libstdc++'s
/// operators.
fn behind(source: &str, allocator: Option<&str>) -> Result<Command> {
    let mut command = Command::new(build::compile(source, &["-std=c++17"])?);
    if let Some(name) = allocator {
        command.env("LD_PRELOAD", preload::debian(name)?);
    }
    Ok(command)
}

fn allocators() -> impl Iterator<Item = Option<&'static str>> {
    [None].into_iter().chain(preload::ALLOCATORS.iter().copied().map(Some))
}

/// Checks that each function has exactly its allocations and its held blocks.
fn is_exact(command: &mut Command) -> Result<()> {
    let mut workload = Workload::spawn("operators.cpp", command)?;
    let daemon = Daemon::start(&[workload.pid()], &EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    for of in &truth.functions {
        let (name, row) = (&of.name, profile.row(&of.name));
        let seen = (row.alloc_space.sum, row.inuse_space.sum);
        let expected = (of.alloc.bytes as f64, of.live.bytes as f64);
        ensure!(seen == expected, "{name}: {seen:?} is not {expected:?}: {}", daemon.log());
    }
    workload.exit()?;
    daemon.stop()
}

#[test]
fn blocks_of_operators_are_counted_once_and_freed() -> Result<()> {
    for allocator in allocators() {
        let mut command = behind("operators.cpp", allocator)?;
        is_exact(&mut command).with_context(|| format!("{allocator:?}"))?;
    }
    Ok(())
}

/// Operators that call `malloc` and `free` through a linkage table for indirect branch tracking, as
/// Ubuntu's libraries have it. Hooks of both would count a call twice.
#[test]
fn operators_behind_a_tracked_linkage_table_are_not_hooked() -> Result<()> {
    let flags = ["-shared", "-fPIC", "-fno-builtin", "-fcf-protection", "-Wl,-z,ibtplt"];
    let library = build::compile("ibtplt.cpp", &flags)?;
    let mut command = behind("operators.cpp", None)?;
    let workload = Workload::spawn("operators.cpp", command.env("LD_PRELOAD", &library))?;
    let line = inject::done("preflight", workload.pid(), &[])?;
    ensure!(line.contains("malloc@") && line.contains("free@"), "{line}");
    ensure!(!line.contains("_Zn") && !line.contains("_Zd"), "{line}");
    is_exact(&mut command)
}

/// `operator new` fails and throws, and its handler throws, while the sampler is injected.
#[test]
fn exceptions_of_operator_new_pass_through() -> Result<()> {
    // Debian's mimalloc is built as C: its operator new ends the program itself.
    for allocator in allocators().filter(|of| !of.is_some_and(|name| name.contains("mimalloc"))) {
        let mut command = behind("newfail.cpp", allocator)?;
        let mut workload = Workload::spawn("newfail.cpp", command.arg("larger"))?;
        let daemon = Daemon::start(&[workload.pid()], &EVERYTHING)?;
        workload.go()?;
        workload.truth().with_context(|| format!("{allocator:?}"))?;
        let profile = daemon.profile("alloc", &[])?;
        let is_seen = |stack: &sampler_tests::profile::Stack| {
            stack.contains("main") && stack.quantities.alloc_space.value == 1234.0
        };
        ensure!(profile.stacks.iter().any(is_seen), "{allocator:?}: {}", profile.folded());
        workload.child().send("exit")?;
        ensure!(workload.child().line()? == "survived", "{allocator:?}");
        ensure!(workload.wait()?.success(), "{allocator:?}: it ended badly");
        daemon.stop()?;
    }
    Ok(())
}
