//! Allocators inside libraries and programs whose symbols are local, have a prefix, or are missing.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile, Truth, Workload, build};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Every allocation is sampled, and has room in the ring however slow the daemon is.
const EVERYTHING: &[&str] = &["--interval", "1", "--ring", "256MiB"];

/// The static library of jemalloc, to link into libraries.
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc_pic.a";

/// jemalloc's functions.
const FUNCTIONS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "free",
    "mallocx",
    "rallocx",
    "xallocx",
    "sallocx",
    "dallocx",
    "sdallocx",
    "nallocx",
    "mallctl",
    "mallctlnametomib",
    "mallctlbymib",
    "malloc_stats_print",
    "malloc_usable_size",
];

/// Location of the workload's allocator, and kind of its symbols.
struct Case {
    /// Prefix of every name.
    prefix: &'static str,
    /// Whether the allocator is in a library of its own, or in the program.
    in_library: bool,
    /// Whether the symbols are only in the symbol table that `strip` removes.
    is_local: bool,
    /// Whether that table is removed.
    is_stripped: bool,
}

const CASE: Case = Case { prefix: "", in_library: true, is_local: true, is_stripped: false };

fn run(program: &str, arguments: &[&str], directory: &Path) -> Result<()> {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {said}");
    Ok(())
}

impl Case {
    /// Links `family.c` with an allocator whose symbols are those of the case.
    fn program(&self) -> Result<(TempDir, PathBuf)> {
        ensure!(Path::new(JEMALLOC).exists(), "{JEMALLOC} is missing (see xtask/src/packages.rs)");
        let directory = tempfile::tempdir()?;
        let at = directory.path();
        let object = build::compile("family.c", &["-c", "-fPIC", "-Dmain=workload"])?;
        run("ld", &["-r", &object.display().to_string(), JEMALLOC, "-o", "plain.o"], at)?;
        let mut change = Vec::new();
        for name in FUNCTIONS {
            if self.is_local && !self.in_library {
                change.push(format!("--localize-symbol={}{name}", self.prefix));
            }
            if !self.prefix.is_empty() {
                change.push(format!("--redefine-sym={name}={}{name}", self.prefix));
            }
        }
        let mut change: Vec<&str> = change.iter().map(String::as_str).collect();
        change.extend(["plain.o", "all.o"]);
        run("objcopy", &change, at)?;
        std::fs::write(
            at.join("host.c"),
            "int workload(void); int main(void) { return workload(); }",
        )?;
        let local =
            if self.is_local { "{ global: workload; local: *; };" } else { "{ global: *; };" };
        std::fs::write(at.join("map"), local)?;
        let needed = ["-pthread", "-lm", "-ldl"];
        let linked = if self.in_library {
            let library = [
                "-shared",
                "-Wl,--version-script=map,-soname,libhidden.so",
                "all.o",
                "-o",
                "libhidden.so",
            ];
            run("cc", &[&library[..], &needed].concat(), at)?;
            "./libhidden.so"
        } else {
            "all.o"
        };
        run(
            "cc",
            &[&["host.c", linked, "-Wl,-rpath,$ORIGIN", "-o", "host"][..], &needed].concat(),
            at,
        )?;
        if self.is_stripped {
            run("strip", &["host", if self.in_library { linked } else { "host" }], at)?;
        }
        let program = at.join("host");
        Ok((directory, program))
    }

    /// Profiles the program. Returns the profile, the truth, and the daemon's list of what is not
    /// profiled.
    fn profile(&self, arguments: &[&str]) -> Result<(Profile, Truth, String)> {
        let (_directory, program) = self.program()?;
        let mut workload = Workload::start_program(&program, &[])?;
        let daemon = Daemon::start(&[workload.pid()], &[EVERYTHING, arguments].concat())?;
        workload.go()?;
        let truth = workload.truth()?;
        let profile = daemon.profile("live", &[])?;
        let blind_spots = daemon.status()?["blind"].to_string();
        workload.exit()?;
        daemon.stop()?;
        Ok((profile, truth, blind_spots))
    }

    fn is_true(&self, arguments: &[&str]) -> Result<()> {
        let (profile, truth, blind_spots) = self.profile(arguments)?;
        let total = truth.total();
        let seen = (profile.exact_objects, profile.exact_space);
        ensure!(
            seen == (total.alloc.objects, total.alloc.bytes),
            "{seen:?}, not {total:?}; blind: {blind_spots}"
        );
        let held = profile.totals.inuse_space;
        ensure!(held.value == total.live.bytes as f64, "held {held:?}, not {}", total.live.bytes);
        ensure!(!blind_spots.contains("jemalloc"), "{blind_spots}");
        Ok(())
    }
}

#[test]
fn local_symbols_of_a_library_with_a_prefix_are_probed() -> Result<()> {
    Case { prefix: "je_arrow_", ..CASE }.is_true(&[])?;
    Case { prefix: "x9", ..CASE }.is_true(&["--probe-engine", "multi"])
}

#[test]
fn local_symbols_of_a_library_without_a_prefix_are_probed() -> Result<()> {
    CASE.is_true(&[])
}

#[test]
fn exported_symbols_with_a_prefix_are_probed() -> Result<()> {
    Case { prefix: "duckdb_je_", is_local: false, is_stripped: true, ..CASE }.is_true(&[])
}

#[test]
fn local_symbols_of_a_program_are_probed() -> Result<()> {
    let program = Case { in_library: false, ..CASE };
    program.is_true(&[])?;
    Case { prefix: "_rjem_", ..program }.is_true(&[])
}

#[test]
fn an_allocator_without_symbols_is_named() -> Result<()> {
    for in_library in [true, false] {
        let case = Case { prefix: "je_arrow_", is_stripped: true, in_library, ..CASE };
        let (profile, _, blind_spots) = case.profile(&[])?;
        let words = "contains jemalloc, its functions have no symbols";
        ensure!(blind_spots.contains(words), "{blind_spots}");
        let notes = profile.json["notes"].to_string();
        ensure!(notes.contains(words), "{notes}");
    }
    Ok(())
}

/// Which of the profiles' notes and `status` report memory that no held block explains.
fn unexplained(how: &str) -> Result<[bool; 3]> {
    let mut workload = Workload::start("unseen.c", &[how])?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    workload.go()?;
    workload.truth()?;
    let words = "MiB of anonymous memory since the attach is in no block known to be held";
    let of_kind = |kind: &str| Ok(daemon.profile(kind, &[])?.json["notes"].to_string());
    let said: [Result<String>; 3] =
        [of_kind("live"), of_kind("alloc"), Ok(daemon.status()?["blind"].to_string())];
    let mut is_said = [false; 3];
    for (said, is_said) in said.into_iter().zip(&mut is_said) {
        let said = said?;
        *is_said = said.contains(words);
        ensure!(!*is_said || said.contains(": 64."), "{said}");
    }
    workload.exit()?;
    daemon.stop()?;
    Ok(is_said)
}

#[test]
fn memory_that_no_block_explains_is_reported() -> Result<()> {
    ensure!(unexplained("past")? == [true; 3], "not said");
    ensure!(unexplained("malloc")? == [false; 3], "said of what is held");
    Ok(())
}

/// Blocks from a cache inside the callers are not seen. The profile must not claim to be complete.
#[test]
fn partly_seen_allocations_are_reported_as_at_least() -> Result<()> {
    let library = build::compile("fastpath.c", &["-shared", "-fPIC"])?;
    let host = build::compile("fastpath.c", &["-DHOST"])?;
    let library = library.to_str().context("a path that is text")?;
    let mut workload = Workload::start_program(&host, &[library])?;
    let daemon = Daemon::start(&[workload.pid()], EVERYTHING)?;
    workload.go()?;
    let truth = workload.truth()?.total().alloc;
    let profile = daemon.profile("alloc", &[])?;
    let seen = profile.exact_objects;
    ensure!(seen > 0 && seen < truth.objects, "{seen} of {}", truth.objects);
    let text = daemon.sampler(&["profile"])?.success("sampler profile")?.stdout;
    let text = String::from_utf8_lossy(&text);
    ensure!(text.contains("at least: some are not seen"), "{text}");
    ensure!(text.contains("is inlined into its callers"), "{text}");
    workload.exit()?;
    daemon.stop()
}
