//! Programs whose code in memory differs from their files.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sampler_tests::child::Child;
use sampler_tests::daemon::sampler;
use sampler_tests::{Daemon, Profile, Truth, Workload, build, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Every allocation is sampled: held bytes are exact.
const ALL: [&str; 2] = ["--interval", "1"];

/// A program that patches `function` in this `way`, at the mark `when`.
fn program(function: &str, way: &str, when: &str) -> Result<Workload> {
    Workload::start("patched.c", &[function, way, when])
}

/// The line of `status` about the function, if there is one.
fn named(daemon: &Daemon, function: &str) -> Result<Option<String>> {
    named_in(&daemon.status()?, function)
}

fn named_in(status: &Value, function: &str) -> Result<Option<String>> {
    let lines = status["blind"].as_array().context("status has no blind")?;
    let mut lines = lines.iter().filter_map(|line| line.as_str());
    let is_it = |line: &&str| {
        line.contains(&format!(": {function}: ")) && line.contains("differs from the file")
    };
    Ok(lines.find(is_it).map(str::to_owned))
}

/// Held bytes of a function's allocations.
fn held(profile: &Profile, function: &str) -> u64 {
    profile.row(function).inuse_space.own as u64
}

/// Checks that held bytes equal the truth. They must be 0 if the ends of blocks cannot be probed.
fn holds(daemon: &Daemon, workload: &Workload, truth: &Truth, function: &str) -> Result<()> {
    let pid = workload.pid().to_string();
    let known = |unknown: &str, name: &str| -> Result<u64> {
        let bytes = truth.function(name)?.live.bytes;
        Ok(if function == unknown { 0 } else { bytes })
    };
    let heap = daemon.profile("live", &["--pid", &pid])?;
    ensure!(held(&heap, "holds") == known("free", "holds")?, "{function}: {}", heap.folded());
    let mapped = daemon.profile("mapped", &["--pid", &pid])?;
    // A function that is patched alone is not probed.
    let unknown = if function == "mmap" { "mmap" } else { "munmap" };
    ensure!(held(&mapped, "maps") == known(unknown, "maps")?, "{function}: {}", mapped.folded());
    Ok(())
}

/// Checks that the program runs to its end with its hook, and that the function is reported.
fn runs(daemon: Daemon, mut workload: Workload, function: &str) -> Result<()> {
    workload.go()?;
    let truth = workload.truth().with_context(|| daemon.log())?;
    let line = named(&daemon, function)?.with_context(|| daemon.log())?;
    ensure!(line.contains(&format!("pid {}", workload.pid())), "{line}");
    let notes = daemon.profile("live", &[])?.json["notes"].to_string();
    ensure!(notes.contains("differs from the file"), "{notes}");
    holds(&daemon, &workload, &truth, function)?;
    daemon.stop()?;
    workload.exit()
}

fn patched_before(function: &str, way: &str, arguments: &[&str]) -> Result<()> {
    let workload = program(function, way, "before")?;
    let daemon = Daemon::start(&[workload.pid()], &[&ALL, arguments].concat())?;
    runs(daemon, workload, function).with_context(|| format!("{function} {way} {arguments:?}"))
}

fn patched_after(function: &str, way: &str, arguments: &[&str]) -> Result<()> {
    let mut workload = program(function, way, "after")?;
    let daemon = Daemon::start(&[workload.pid()], &[&ALL, arguments].concat())?;
    workload.go()?;
    workload.wait_for_mark().with_context(|| format!("{function} {way}"))?;
    wait::until("the patch to be seen", || named(&daemon, function))
        .with_context(|| daemon.log())?;
    runs(daemon, workload, function).with_context(|| format!("{function} {way} {arguments:?}"))
}

#[test]
fn a_patched_function_is_left_alone() -> Result<()> {
    for function in ["malloc", "free", "mmap", "munmap"] {
        patched_before(function, "near", &[])?;
        patched_before(function, "far", &[])?;
    }
    Ok(())
}

#[test]
fn a_patched_function_is_left_alone_on_every_engine() -> Result<()> {
    for engine in ["multi", "perf"] {
        patched_before("malloc", "far", &["--probe-engine", engine])?;
        patched_before("munmap", "near", &["--probe-engine", engine])?;
        patched_after("malloc", "near", &["--probe-engine", engine])?;
    }
    Ok(())
}

#[test]
fn two_bytes_and_a_breakpoint_are_patches_too() -> Result<()> {
    patched_before("malloc", "short", &[])?;
    patched_before("malloc", "trap", &[])?;
    patched_before("munmap", "trap", &[])
}

#[test]
fn a_later_patched_function_is_left_at_once() -> Result<()> {
    for function in ["malloc", "free", "mmap", "munmap"] {
        patched_after(function, "far", &[])?;
    }
    patched_after("malloc", "near", &[])
}

/// Whether a process sleeps, and has one thread. The guardian closes links on further threads.
fn is_idle(pid: u32) -> Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    Ok(of("State:").is_some_and(|state| state.starts_with('S')) && of("Threads:") == Some("1"))
}

/// Limits the descriptors of the daemon's guardian: it can receive one more request, whose link it
/// cannot make. Returns the earlier limit.
fn limit_guardian(guardian: u32) -> Result<Rlimit> {
    wait::until("the guardian to be idle", || Ok(is_idle(guardian)?.then_some(())))?;
    let is_free = |number: &u64| !Path::new(&format!("/proc/{guardian}/fd/{number}")).exists();
    // A request brings three descriptors: the program's, the file's, and that of the link's socket.
    let last = (0..).filter(is_free).nth(2).context("no free descriptor")?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    set_limit(guardian, Rlimit { current: Some(last + 1), maximum })
}

fn set_limit(guardian: u32, limit: Rlimit) -> Result<Rlimit> {
    let pid = Pid::from_raw(guardian.cast_signed());
    prlimit(pid, Resource::Nofile, limit).context("limit the guardian")
}

/// A shell with `trap` handles SIGTRAP, as every interactive shell does. The shell's memory alone
/// does not show whether a breakpoint is its own.
fn trapping_shell() -> Result<Child> {
    let mut shell = Command::new("sh");
    let mut shell = Child::start("sh", shell.args(["-c", "trap : TRAP; echo ready; read line"]))?;
    ensure!(shell.line()? == "ready", "no ready line");
    Ok(shell)
}

/// The links of a file are replaced when a function is patched. If the kernel refuses the new links,
/// nothing is probed any more, and the next inspection attaches again. Then the breakpoints of the
/// links that were not refused are gone, so that none is taken for a patch.
#[test]
fn a_refused_replacement_of_links_is_made_up_for() -> Result<()> {
    let mut shell = trapping_shell()?;
    for shared in [false, true] {
        let mut others = match shared {
            true => (0..4).map(|_| program("none", "near", "before")).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let mut patched = program("malloc", "near", "after")?;
        let pids: Vec<u32> = others.iter().chain([&patched]).map(Workload::pid).collect();
        let daemon = Daemon::start(&pids, &ALL)?;
        let guardian = daemon.guardian()?;
        let limit = limit_guardian(guardian)?;
        patched.go()?;
        patched.wait_for_mark()?;
        wait::until("the patch to be seen", || named(&daemon, "malloc"))?;
        let refusal = "Too many open files";
        wait::until("the refusal", || Ok(daemon.log().contains(refusal).then_some(())))
            .with_context(|| daemon.log())?;
        set_limit(guardian, limit)?;
        wait::until("the file to be probed again", || {
            let log = daemon.log();
            let (_, after) = log.rsplit_once(refusal).unwrap_or_default();
            Ok(after.contains("probing glibc").then_some(()))
        })
        .with_context(|| daemon.log())?;
        for other in &mut others {
            other.go()?;
            let truth = other.truth()?;
            holds(&daemon, other, &truth, "malloc").with_context(|| daemon.log())?;
            other.exit()?;
        }
        ensure!(named(&daemon, "free")?.is_none(), "{}", daemon.log());
        runs(daemon, patched, "malloc")?;
    }
    shell.close_stdin();
    Ok(())
}

/// Links are shared from five processes on. A function that one process has patched is probed in
/// none.
#[test]
fn a_patched_function_is_left_alone_with_shared_links() -> Result<()> {
    for (function, when) in [("malloc", "before"), ("munmap", "before"), ("free", "after")] {
        let mut patched = program(function, "near", when)?;
        let mut others =
            (0..4).map(|_| program("none", "near", "before")).collect::<Result<Vec<_>>>()?;
        let mut pids: Vec<u32> = others.iter().map(Workload::pid).collect();
        pids.push(patched.pid());
        let daemon = Daemon::start(&pids, &ALL)?;
        if when == "after" {
            patched.go()?;
            patched.wait_for_mark()?;
            wait::until("the patch to be seen", || named(&daemon, function))?;
        }
        for other in &mut others {
            other.go()?;
            let truth = other.truth()?;
            holds(&daemon, other, &truth, function)?;
            other.exit()?;
        }
        runs(daemon, patched, function)?;
    }
    Ok(())
}

#[test]
fn a_patched_function_is_left_alone_with_all() -> Result<()> {
    let sparse = ["--all", "--interval", "16KiB"];
    for (function, when) in [("munmap", "before"), ("malloc", "after")] {
        let mut patched = program(function, "near", when)?;
        let daemon = Daemon::start(&[], &sparse)?;
        if when == "after" {
            patched.go()?;
            patched.wait_for_mark()?;
        }
        patched.go()?;
        patched.truth().with_context(|| daemon.log())?;
        wait::until("the patch to be seen", || named(&daemon, function))
            .with_context(|| daemon.log())?;
        daemon.stop()?;
        patched.exit()?;
    }
    Ok(())
}

#[test]
fn a_patched_function_is_left_alone_in_a_tree() -> Result<()> {
    patched_before("malloc", "near", &["--follow"])?;
    patched_after("munmap", "near", &["--follow"])
}

/// The program is started by `sampler run`, and patches itself with the probes in place.
#[test]
fn a_program_that_patches_itself_runs_under_sampler_run() -> Result<()> {
    let program = build::compile("patched.c", &[])?.display().to_string();
    for function in ["malloc", "munmap", "free"] {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("profile").display().to_string();
        let mut command = Command::new(build::program("sampler")?);
        let socket = format!("unix:{}", directory.path().join("socket").display());
        command.args(["run", "--json", "-o", &file, "--listen", &socket]);
        command.args(["--", &program, function, "far", "before"]);
        let mut run = Child::start("sampler run", &mut command)?;
        ensure!(run.line()? == "waiting", "the program must say that it waits");
        run.send("go")?;
        let said = run.line()?;
        ensure!(said.contains("functions") && !said.contains("error"), "{said}");
        // samplerd checks the program from time to time. The program must not end before.
        wait::until("the patch to be seen", || {
            let ended = run.ended()?;
            ensure!(ended.is_none(), "sampler run ended before: {ended:?}");
            let status = sampler(&["--connect", &socket, "status", "--json"])?.success("status")?;
            named_in(&serde_json::from_slice(&status.stdout)?, function)
        })?;
        run.send("exit")?;
        let status = run.wait()?;
        ensure!(status.success(), "sampler run ended with {status}");
        let profile = Profile::parse(&std::fs::read(&file)?)?;
        let notes = profile.json["notes"].to_string();
        ensure!(notes.contains(&format!("{function}: ")), "{notes}");
        ensure!(notes.contains("differs from the file"), "{notes}");
    }
    Ok(())
}

/// The program is profiled in windows, with markers before them.
#[test]
fn a_patched_function_is_left_alone_in_windows() -> Result<()> {
    for when in ["before", "after"] {
        let mut workload = program("malloc", "far", when)?;
        let daemon = Daemon::start(&[workload.pid()], &["--windows", "5%"])?;
        if when == "after" {
            workload.go()?;
            workload.wait_for_mark()?;
        }
        wait::until("the patch to be seen", || named(&daemon, "malloc"))?;
        workload.go()?;
        workload.truth()?;
        daemon.stop()?;
        workload.exit()?;
    }
    Ok(())
}

#[test]
fn an_unpatched_program_is_counted_whole() -> Result<()> {
    let mut workload = program("none", "near", "before")?;
    let daemon = Daemon::start(&[workload.pid()], &ALL)?;
    workload.go()?;
    let truth = workload.truth()?;
    holds(&daemon, &workload, &truth, "none")?;
    ensure!(!daemon.status()?["blind"].to_string().contains("differs from the file"));
    // A second daemon must not take the first one's breakpoints for a patch.
    let second = Daemon::start(&[workload.pid()], &ALL)?;
    ensure!(!second.status()?["blind"].to_string().contains("differs from the file"));
    second.stop()?;
    daemon.stop()?;
    workload.exit()
}

#[test]
fn another_daemons_probes_are_no_patch() -> Result<()> {
    let mut shell = trapping_shell()?;
    let sparse = ["--all", "--interval", "16KiB"];
    let first = Daemon::start(&[], &sparse)?;
    let second = Daemon::start(&[], &sparse)?;
    let mut workload = program("none", "near", "before")?;
    workload.go()?;
    let truth = workload.truth()?.function("holds")?.alloc;
    for daemon in [&first, &second] {
        let said = daemon.log();
        ensure!(!said.contains("differs from the file"), "{said}");
        let listed = daemon.json("ps")?;
        let mut processes = listed["processes"].as_array().context("no processes")?.iter();
        let its = processes.find(|of| of["pid"] == workload.pid()).context("it is not listed")?;
        let seen = its["exact"]["alloc_space"].as_u64().context("no total")?;
        ensure!(seen >= truth.bytes, "{seen} bytes of {}: {said}", truth.bytes);
    }
    shell.close_stdin();
    second.stop()?;
    first.stop()
}
