//! Processes with different allocators under one daemon. Each has its own truth, measured in its
//! own allocator, without cross-talk.

use anyhow::{Context, Result, ensure};
use sampler_tests::truth::Function;
use sampler_tests::{Daemon, Profile, Truth, Workload, build, wait};
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options that sample every allocation. The ring has room for all samples, however slow the daemon
/// is.
const EVERYTHING: &[&str] = &["--interval", "1", "--ring", "256MiB"];

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Libraries that replace malloc, with their names in `ps`.
const PRELOADED: &[(&str, &str)] = &[
    ("libjemalloc.so.2", "jemalloc"),
    ("libtcmalloc_minimal.so.4", "tcmalloc"),
    ("libtcmalloc.so.4", "tcmalloc"),
    ("libmimalloc.so.2.0", "mimalloc"),
    ("libtbbmalloc_proxy.so.2", "tbbmalloc"),
];

/// A workload with its expected allocator.
struct Case {
    name: String,
    /// Part of the name in `ps` of the allocator in force.
    in_force: String,
    workload: Workload,
}

fn preloaded(library: &str, command: &mut Command) -> Result<Workload> {
    let path = format!("{LIBRARIES}/{library}");
    ensure!(std::path::Path::new(&path).exists(), "{path} is missing (see xtask/src/packages.rs)");
    Workload::spawn(library, command.env("LD_PRELOAD", path))
}

/// The C workload under every allocator that there is.
fn cases() -> Result<Vec<Case>> {
    let shared = build::compile("family.c", &[])?;
    let mut cases = Vec::new();
    for (library, _) in PRELOADED {
        let workload = preloaded(library, &mut Command::new(&shared))?;
        cases.push(Case { name: (*library).into(), in_force: (*library).into(), workload });
    }
    let mut add = |name: &str, in_force: &str, flags: &[&str]| -> Result<()> {
        let workload =
            Workload::spawn(name, &mut Command::new(build::compile("family.c", flags)?))?;
        cases.push(Case { name: name.into(), in_force: in_force.into(), workload });
        Ok(())
    };
    add("glibc", "glibc (", &[])?;
    add("static glibc", "glibc (", &["-static"])?;
    add("static musl", "musl (", &[build::MUSL, "-static"])?;
    add("shared musl", "musl (", &[build::MUSL])?;
    let rust = env!("CARGO_BIN_EXE_rust-jemalloc");
    let workload = Workload::start_program(rust.as_ref(), &[])?;
    // Rust's own code calls jemalloc by its prefixed names. Callers of malloc get glibc's.
    cases.push(Case { name: "rust".into(), in_force: "glibc (".into(), workload });
    Ok(cases)
}

/// Checks that no allocation is missed, counted twice or taken from another process.
fn judge(profile: &Profile, truth: &Truth) -> Result<()> {
    for function in &truth.functions {
        judge_function(profile, function)?;
    }
    judge_total(profile, truth)
}

fn judge_total(profile: &Profile, truth: &Truth) -> Result<()> {
    let total = truth.total();
    let exact = (profile.exact_objects, profile.exact_space);
    ensure!(
        exact == (total.alloc.objects, total.alloc.bytes),
        "exact totals {exact:?}, truth {} objects of {} bytes\n{}",
        total.alloc.objects,
        total.alloc.bytes,
        profile.folded()
    );
    let live = profile.totals.inuse_space.value;
    ensure!(live == total.live.bytes as f64, "held: {live}, not {}", total.live.bytes);
    Ok(())
}

fn judge_function(profile: &Profile, function: &Function) -> Result<()> {
    let row = profile.row(&function.name);
    for (what, ours, theirs) in [
        ("allocated", row.alloc_space.sum, function.alloc.bytes),
        ("allocated objects", row.alloc_objects.sum, function.alloc.objects),
        ("held", row.inuse_space.sum, function.live.bytes),
        ("held objects", row.inuse_objects.sum, function.live.objects),
    ] {
        ensure!(
            ours == theirs as f64,
            "{}: {what} {ours}, not {theirs}\n{}",
            function.name,
            profile.folded()
        );
    }
    Ok(())
}

/// The entry of the process in `ps`.
fn shown(daemon: &Daemon, pid: u32) -> Result<Value> {
    let list = daemon.json("ps")?;
    let found = list["processes"].as_array().into_iter().flatten().find(|of| of["pid"] == pid);
    found.cloned().with_context(|| format!("ps does not show {pid}: {list}"))
}

fn judge_all(arguments: &[&str]) -> Result<()> {
    let mut cases = cases()?;
    let pids: Vec<u32> = cases.iter().map(|case| case.workload.pid()).collect();
    let daemon = Daemon::start(&pids, &[EVERYTHING, arguments].concat())?;
    // All workloads run at the same time, so that a mix-up would show.
    cases.iter_mut().try_for_each(|case| case.workload.go())?;
    for case in &mut cases {
        let truth = case.workload.truth()?;
        let pid = case.workload.pid();
        let profile = daemon.profile("alloc", &["--pid", &pid.to_string()])?;
        // musl has no unwind tables. The callers of its calloc are therefore unknown.
        let judged = match case.in_force.contains("musl") {
            true => judge_total(&profile, &truth),
            false => judge(&profile, &truth),
        };
        judged.with_context(|| case.name.clone())?;
        let process = shown(&daemon, pid)?;
        let in_force = process["allocator_in_force"].as_str().unwrap_or_default();
        ensure!(in_force.contains(&case.in_force), "{}: in force {in_force}", case.name);
        ensure!(process["blind"] == serde_json::json!([]), "{}: {process}", case.name);
    }
    cases.iter_mut().try_for_each(|case| case.workload.exit())?;
    daemon.stop()
}

#[test]
fn every_allocator_is_counted_exactly() -> Result<()> {
    judge_all(&[])
}

#[test]
fn every_allocator_is_counted_exactly_by_multi_links() -> Result<()> {
    judge_all(&["--probe-engine", "multi"])
}

/// The forms that throw are counted at their entry. Status says that their held blocks are unseen.
#[test]
fn operator_new_of_every_allocator_is_counted_once() -> Result<()> {
    let program = build::compile("operators.cpp", &["-std=c++17"])?;
    for (library, _) in PRELOADED {
        let mut workload = preloaded(library, &mut Command::new(&program))?;
        let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
        workload.go()?;
        let truth = workload.truth()?;
        let profile = daemon.profile("alloc", &[])?;
        operators(&daemon, &workload, &profile, &truth).with_context(|| (*library).to_owned())?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

fn operators(daemon: &Daemon, workload: &Workload, profile: &Profile, truth: &Truth) -> Result<()> {
    let total = truth.total().alloc;
    let exact = (profile.exact_objects, profile.exact_space);
    ensure!(exact == (total.objects, total.bytes), "{exact:?}, truth {total:?}");
    for name in ["by_nothrow", "by_malloc"] {
        judge_function(profile, truth.function(name)?)?;
    }
    let throwing = truth.function("by_throwing")?;
    let row = profile.row("by_throwing");
    ensure!(row.alloc_space.sum == throwing.alloc.bytes as f64, "{}", profile.folded());
    // The callers are in the stack: unwinding from the entry begins at the right place.
    let whole = profile.stacks_of("by_throwing").all(|stack| stack.contains("main"));
    ensure!(whole, "{}", profile.folded());
    let process = shown(daemon, workload.pid())?;
    let blind_spots = process["blind"].to_string();
    let is_held = row.inuse_space.sum == throwing.live.bytes as f64;
    let is_said = blind_spots.contains("operator new may throw");
    ensure!(is_held != is_said, "held {} and said {blind_spots}", row.inuse_space.sum);
    ensure!(is_said || row.inuse_space.samples > 0, "{blind_spots}");
    Ok(())
}

/// The C++ unwinder must never find the kernel's trampoline on the stack.
#[test]
fn a_failing_new_is_harmless_under_every_allocator() -> Result<()> {
    let program = build::compile("newfail.cpp", &[])?;
    // Debian's mimalloc is built as C: its operator new ends the program itself.
    for (library, _) in PRELOADED.iter().filter(|(_, name)| *name != "mimalloc") {
        for engine in ["session", "multi", "perf"] {
            let mut workload = preloaded(library, Command::new(&program).arg("larger"))?;
            let arguments = ["--interval", "1", "--probe-engine", engine];
            let daemon = Daemon::start(&[workload.pid()], &arguments)?;
            workload.go()?;
            let truth = workload.truth().with_context(|| format!("{library} by {engine}"))?;
            ensure!(truth.functions.is_empty());
            let profile = daemon.profile("alloc", &[])?;
            // The huge requests failed, and the last request did not.
            ensure!(profile.exact_space < 1 << 30, "{library}: {}", profile.exact_space);
            let is_seen = |stack: &sampler_tests::profile::Stack| {
                stack.contains("main") && stack.quantities.alloc_space.value == 1234.0
            };
            ensure!(profile.stacks.iter().any(is_seen), "{library}: {}", profile.folded());
            workload.child().send("exit")?;
            ensure!(workload.child().line()? == "survived", "{library} by {engine}");
            ensure!(workload.wait()?.success(), "{library} by {engine}: it ended badly");
            daemon.stop()?;
        }
    }
    build::require_root()
}

/// Stacks of calls that are probed only at their entry. The kernel walks them by frame pointers.
#[test]
fn operator_new_has_its_callers_by_frame_pointers() -> Result<()> {
    let program = build::compile("operators.cpp", &["-std=c++17", "-fno-omit-frame-pointer"])?;
    let mut workload = preloaded("libjemalloc.so.2", &mut Command::new(program))?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--unwind", "fp"])?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let row = profile.row("by_throwing");
    let theirs = truth.function("by_throwing")?.alloc.bytes as f64;
    ensure!(row.alloc_space.sum == theirs, "{}", profile.folded());
    let main = profile.row("main");
    ensure!(main.alloc_space.sum == truth.total().alloc.bytes as f64, "{}", profile.folded());
    for stack in profile.stacks_of("by_throwing") {
        let times = stack.frames.iter().filter(|frame| *frame == "by_throwing").count();
        ensure!(times == 1, "its caller is there {times} times: {:?}", stack.frames);
    }
    workload.exit()?;
    daemon.stop()
}

/// A pool of the program's own, described only by the specification file.
#[test]
fn a_described_pool_is_counted_as_an_allocator() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("pools");
    std::fs::write(
        &file,
        "# a pool\nlibrary pool-*\nmalloc pool_take size=2\n\
         calloc pool_table size=2 count=3\nfree pool_give pointer=2\n",
    )?;
    let spec = file.to_str().context("a path")?;
    let mut workload = Workload::start("pool.c", &[])?;
    let arguments = ["--interval", "1", "--allocator-spec", spec];
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    judge(&daemon.profile("alloc", &[])?, &truth)?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_bad_description_is_refused_with_its_line() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("pools");
    std::fs::write(&file, "library x\nmalloc f size=9\n")?;
    let spec = file.to_str().context("a path")?;
    let pid = std::process::id().to_string();
    let finished = sampler_tests::daemon::samplerd(&["--pid", &pid, "--allocator-spec", spec])?;
    let error = &finished.stderr;
    ensure!(finished.code() == 1, "{}: {error}", finished.code());
    ensure!(error.contains("line 2: size=9: arguments are 1 to 6"), "{error}");
    ensure!(error.lines().count() == 1, "{error}");
    Ok(())
}

/// A static program with 40 MiB of symbols. Its search takes longer than samples may wait.
fn program_with_many_symbols(directory: &Path) -> Result<PathBuf> {
    const SYMBOLS: usize = 1_200_000;
    let (source, program) = (directory.join("labels.s"), directory.join("large"));
    let mut file = BufWriter::new(File::create(&source)?);
    writeln!(file, ".data")?;
    (0..SYMBOLS).try_for_each(|number| writeln!(file, "label_{number}:"))?;
    writeln!(file, ".byte 0\n.section .note.GNU-stack,\"\",@progbits")?;
    file.flush()?;
    let mut compiler = Command::new("cc");
    compiler.arg("-static").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/beside.c"));
    let status = compiler
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(["-O1", "-w", "-fno-builtin"])
        .status()?;
    ensure!(status.success(), "cc has failed");
    ensure!(program.metadata()?.len() > 32 << 20, "the program is not large");
    Ok(program)
}

#[test]
fn an_allocator_in_a_large_file_is_found() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = program_with_many_symbols(directory.path())?;
    for is_machine in [false, true] {
        let mut workload = Workload::start_program(&program, &[])?;
        let daemon = match is_machine {
            true => Daemon::start(&[], &["--all"])?,
            false => Daemon::start(&[workload.pid()], &[])?,
        };
        workload.go()?;
        let pid = workload.pid().to_string();
        wait::until("samples", || {
            let profile = daemon.profile("alloc", &["--pid", &pid]).ok();
            Ok(profile.filter(|of| of.samples > 10))
        })?;
        workload.child().signal(libc::SIGKILL)?;
        workload.wait()?;
        daemon.stop()?;
    }
    Ok(())
}
