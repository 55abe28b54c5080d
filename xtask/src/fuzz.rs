//! `cargo xtask fuzz`: fuzzes what reads files, strings and messages of others.
//!
//! The fuzzer is LLVM's libFuzzer. Its instrumentation is a pass of LLVM, which the stable compiler
//! has; a sanitizer is not needed, since the readers are safe Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::step;
use crate::workspace::Workspace;

/// The targets: the names in `fuzz/src/main.rs`, which are those of the folders of seeds.
const TARGETS: [&str; 11] = [
    "elf",
    "unwind-tables",
    "symbols",
    "notes",
    "perf-map",
    "proc",
    "ring",
    "packets",
    "json",
    "spec",
    "query",
];
/// Default time for each target, seconds.
pub(crate) const SECONDS: u32 = 60;
/// Targets that read ELF files. Their first seeds are compiled here.
const ELF_TARGETS: [&str; 3] = ["elf", "unwind-tables", "symbols"];
/// Seed of the target `json`.
const PROFILE: &str = "sampler-common/src/encode/golden/alloc.json";
/// Counters for each edge and comparison, as libFuzzer reads them.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Instrumented programs are built for a named target. Otherwise build scripts were instrumented,
/// too.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Longest input, bytes.
const MAX_INPUT: u32 = 64 << 10;
/// Longest time that one input may take, seconds.
const TIMEOUT: u32 = 10;
/// Most memory of the fuzzer, and of one allocation, MiB. The parser process has as much.
const MAX_MIB: u32 = 1024;
/// Program of which ELF seeds are made: it has an allocator, and functions to unwind.
const SEED_PROGRAM: &str = "#include <stddef.h>
static char heap[1 << 16]; static size_t used;
void *malloc(size_t n) { used += n; return heap + used - n; }
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
int main(void) { return malloc(7) == 0; }
";

/// Fuzzes each of `targets`, all if there are none, for this number of seconds.
///
/// # Errors
/// If a target is unknown, if the fuzzer cannot be built, or if an input ends it. The input stays in
/// a file, which the error names.
pub(crate) fn run(workspace: &Workspace, targets: &[String], seconds: u32) -> Result<()> {
    let unknown = targets.iter().find(|name| !TARGETS.contains(&name.as_str()));
    if let Some(name) = unknown {
        bail!("{name}: no such target (one of {})", TARGETS.join(", "));
    }
    let program = build(workspace)?;
    let all = TARGETS.map(str::to_owned);
    let targets = if targets.is_empty() { &all[..] } else { targets };
    for target in targets {
        let corpus = workspace.target.join("fuzz/corpus").join(target);
        let found = workspace.target.join("fuzz/found").join(target);
        for folder in [&corpus, &found] {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        if ELF_TARGETS.contains(&target.as_str()) {
            compile_seeds(&corpus)?;
        }
        if target == "json" {
            fs::copy(workspace.root.join(PROFILE), corpus.join("profile"))
                .context("copy a seed")?;
        }
        let mut command = Command::new(&program);
        command.env("SAMPLER_FUZZ", target).current_dir(&found);
        command.args([
            format!("-max_total_time={seconds}"),
            format!("-max_len={MAX_INPUT}"),
            format!("-timeout={TIMEOUT}"),
            format!("-rss_limit_mb={MAX_MIB}"),
            format!("-artifact_prefix={}/", found.display()),
            "-print_final_stats=1".to_owned(),
            "-verbosity=0".to_owned(),
        ]);
        let seeds = workspace.root.join("fuzz/seeds").join(target);
        command.arg(&corpus).args(seeds.exists().then_some(seeds));
        let fuzzed = step::run(&format!("fuzz {target}"), &mut command);
        fuzzed.with_context(|| format!("the input is in {}", found.display()))?;
    }
    Ok(())
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let lock = workspace.root.join("fuzz/Cargo.lock");
    fs::copy(workspace.root.join("Cargo.lock"), &lock).context("copy the lock file")?;
    let built = workspace.target.join("fuzz/build");
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--target", TRIPLE, "--manifest-path"]);
    command.arg(workspace.root.join("fuzz/Cargo.toml")).arg("--target-dir").arg(&built);
    command.env("RUSTFLAGS", INSTRUMENTATION);
    step::run("build the fuzzer", &mut command)?;
    Ok(built.join(TRIPLE).join("release/sampler-fuzz"))
}

/// Compiles a library and a program with debug data, plain and compressed.
fn compile_seeds(corpus: &Path) -> Result<()> {
    let source = corpus.with_extension("c");
    fs::write(&source, SEED_PROGRAM).with_context(|| format!("write {}", source.display()))?;
    let kinds: [(&str, &[&str]); 3] = [
        ("library", &["-shared", "-fPIC", "-nostdlib", "-Wl,--build-id"]),
        ("debug", &["-shared", "-fPIC", "-nostdlib", "-g"]),
        ("compressed", &["-shared", "-fPIC", "-nostdlib", "-g", "-gz"]),
    ];
    for (name, arguments) in kinds {
        let mut command = Command::new("cc");
        command.args(["-O1", "-w", "-o"]).arg(corpus.join(name)).args(arguments).arg(&source);
        step::output(&mut command).with_context(|| format!("compile a seed with {arguments:?}"))?;
    }
    let bytes = fs::metadata(corpus.join("library")).context("look at a seed")?.len();
    ensure!(bytes < u64::from(MAX_INPUT), "the seeds are longer than the longest input");
    Ok(())
}
