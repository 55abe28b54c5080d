//! Paths of programs: the project's own, and the workloads, which are compiled here on first use.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workloads' sources.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads");

/// The benchmarks' sources.
const BENCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");

/// Flags of every workload: calls stay calls, and frames stay frames.
const FLAGS: &[&str] =
    &["-O2", "-g", "-Wall", "-Wextra", "-fno-builtin", "-fno-optimize-sibling-calls"];

/// One of the flags of [`compile`]: compiles with musl instead of glibc.
pub const MUSL: &str = "musl";

/// Cargo's target directory: a test is `TARGET/PROFILE/deps/NAME`, a program `TARGET/PROFILE/NAME`.
pub fn target_directory() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("find this program")?;
    let profile = exe.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    let target = profile.and_then(Path::parent);
    Ok(target.with_context(|| format!("{} lies too high", exe.display()))?.to_path_buf())
}

/// `samplerd` or `sampler`, built with `cargo build --release --bins`.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = target_directory()?.join("release").join(name);
    ensure!(
        path.is_file(),
        "{} does not exist: build it first (cargo build --release --bins)",
        path.display()
    );
    Ok(path)
}

/// Fails loudly if the tests cannot run at all.
pub fn require_root() -> Result<()> {
    // The owner of our own /proc entry is the effective user.
    use std::os::unix::fs::MetadataExt;
    let owner = fs::metadata("/proc/self").context("stat /proc/self")?.uid();
    ensure!(owner == 0, "end-to-end tests load eBPF programs: run them as root");
    Ok(())
}

/// Compiles `source` (a file of `workloads/`) with extra `flags`, unless the result exists.
pub fn compile(source: &str, flags: &[&str]) -> Result<PathBuf> {
    compile_in(SOURCES, source, flags)
}

/// Compiles `source` (a file of `benches/`) as [`compile`] does.
pub fn compile_bench(source: &str) -> Result<PathBuf> {
    compile_in(BENCHES, source, &[])
}

/// Compiles `source` (a file of `benches/`) to a library that can be preloaded.
pub fn compile_library(source: &str) -> Result<PathBuf> {
    compile_in(BENCHES, source, &["-shared", "-fPIC"])
}

/// Compiles `source` (a Go file of `workloads/`), unless the result exists.
pub fn compile_go(source: &str) -> Result<PathBuf> {
    let path = Path::new(SOURCES).join(source);
    let mut hasher = DefaultHasher::new();
    read(&path)?.hash(&mut hasher);
    let stem = source.split('.').next().unwrap_or(source);
    once(&format!("{stem}-go-{:016x}", hasher.finish()), |directory, program| {
        let mut go = Command::new("go");
        go.args(["build", "-o"]).args([program, &path]);
        go.env("GOCACHE", directory.join("go-cache")).env("GO111MODULE", "off");
        run(&mut go, &path, "apt-get install golang-go")
    })
}

fn compile_in(sources: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
    let path = Path::new(sources).join(source);
    let compiler = match source.ends_with(".cpp") {
        true => "c++",
        // Another libc has a compiler of its own.
        false if flags.contains(&MUSL) => "musl-gcc",
        false => "cc",
    };
    let mut hasher = DefaultHasher::new();
    (FLAGS, flags, read(&path)?).hash(&mut hasher);
    read(&Path::new(SOURCES).join("protocol.h"))?.hash(&mut hasher);
    parts(&path.with_extension(""))?.hash(&mut hasher);
    let stem = path.file_stem().unwrap_or_default().display();
    once(&format!("{stem}-{:016x}", hasher.finish()), |_, program| {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(flags.iter().filter(|flag| **flag != MUSL));
        command.arg(&path).arg("-o").arg(program).args(["-pthread", "-lm", "-ldl"]);
        run(&mut command, &path, "install a C and C++ compiler")
    })
}

/// Makes a file of this name in the directory of workloads, unless the file exists. The name
/// identifies the contents. `make` gets the directory and the path to write to.
fn once(name: &str, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    let directory = target_directory()?.join("workloads");
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let program = directory.join(name);
    if program.exists() {
        return Ok(program);
    }
    // Tests run side by side. The file is therefore made under a name of its own, and then renamed.
    let made = tempfile::Builder::new().tempdir_in(&directory).context("make a directory")?;
    let partial = made.path().join(name);
    make(&directory, &partial)?;
    fs::rename(&partial, &program).with_context(|| format!("name {}", program.display()))?;
    Ok(program)
}

/// Runs a compiler on a source. `remedy` says what helps if there is no compiler.
fn run(compiler: &mut Command, source: &Path, remedy: &str) -> Result<()> {
    let name = compiler.get_program().to_string_lossy().into_owned();
    let output = compiler.output().with_context(|| format!("run {name} ({remedy})"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} {}: {said}", source.display());
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Contents of the files that a source includes. These files are in the folder with the source's
/// name, if it exists.
fn parts(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut parts = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(parts);
    }
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        let contents = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        parts.insert(path, contents);
    }
    Ok(parts)
}
