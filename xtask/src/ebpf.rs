//! Builds the eBPF package into the two objects that samplerd carries, and checks them.

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::linker::Linker;
use crate::stamp::Stamp;
use crate::toolchain::Toolchain;
use crate::traps::Kind;
use crate::workspace::Workspace;
use crate::{linker, packages, step, toolchain, traps};

/// The binaries of sampler-ebpf; each becomes `NAME.bpf.o`.
const PROGRAMS: [(&str, Kind); 2] = [("sampler", Kind::Sampler), ("bench", Kind::Bench)];
const TARGET: &str = "bpfel-unknown-none";

/// Builds both objects, unless none of their inputs has changed. `log` compiles the program's debug
/// log in.
///
/// # Errors
/// If a tool is missing and cannot be installed, or the program does not compile.
/// If an object shows one of the traps that the verifier accepts.
pub(crate) fn build(workspace: &Workspace, force: bool, log: bool) -> Result<()> {
    let started = Instant::now();
    let (toolchain, linker) = tools(workspace)?;
    let stamp_file = workspace.objects().join("stamp");
    let flags = flags(workspace, &toolchain, &linker);
    // The inputs are read before compiling: a change during the build is not in the objects.
    let inputs = format!("{} log={log}", inputs(workspace, &toolchain, &linker, &flags)?);
    let stamp = || anyhow::Ok(format!("{inputs}\n{}\n", outputs(workspace)?));
    let old = fs::read_to_string(&stamp_file).unwrap_or_default();
    if !force && old == stamp()? {
        eprintln!("eBPF objects are up to date ({} ms)", started.elapsed().as_millis());
        return Ok(());
    }
    fs::create_dir_all(workspace.objects())
        .with_context(|| format!("create {}", workspace.objects().display()))?;
    eprintln!("eBPF: {}, bpf-linker at {}", toolchain.name(), linker.program.display());
    let home = cargo_home();
    let places: Vec<&Path> =
        [Some(&workspace.root), Some(&workspace.target), home.as_ref(), Some(&toolchain.source)]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect();
    for (program, kind) in PROGRAMS {
        let built = compile(workspace, &toolchain, &flags, program, log)?;
        let object =
            fs::read(&built.object).with_context(|| format!("read {}", built.object.display()))?;
        let code = fs::read_to_string(&built.code)
            .with_context(|| format!("read {}", built.code.display()))?;
        let destination = workspace.objects().join(format!("{program}.bpf.o"));
        let report = traps::check(kind, &object, &code, &places).inspect_err(|_| {
            // Otherwise the daemon would be built with the previous object.
            let _ = fs::remove_file(&destination);
        });
        let report = report.with_context(|| format!("check the eBPF object of {program}"))?;
        replace(&destination, &object)?;
        eprintln!("    {}: {report}", destination.display());
    }
    // The stamp is written last, so that an interrupted or refused build is repeated.
    fs::write(&stamp_file, stamp()?).with_context(|| format!("write {}", stamp_file.display()))?;
    eprintln!("    build-ebpf: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Finds a compiler and a linker that fit each other. Installs them first if necessary and
/// possible.
fn tools(workspace: &Workspace) -> Result<(Toolchain, Linker)> {
    if let Some(pair) = pair(workspace) {
        return Ok(pair);
    }
    if let Some(pair) = with_installed_llvm(workspace)? {
        return Ok(pair);
    }
    if packages::can_install() {
        let installed = install_from_distribution(workspace);
        if let Some(pair) = pair(workspace) {
            return Ok(pair);
        }
        installed?;
    }
    bail!("{}", remedy());
}

fn pair(workspace: &Workspace) -> Option<(Toolchain, Linker)> {
    toolchain::find().into_iter().find_map(|toolchain| {
        let fits = |linker: &Linker| linker.reads(toolchain.llvm);
        let linker = linker::find(workspace).into_iter().find(fits)?;
        Some((toolchain, linker))
    })
}

/// Installs the linker if only the linker is missing, and LLVM's development files are there.
fn with_installed_llvm(workspace: &Workspace) -> Result<Option<(Toolchain, Linker)>> {
    let llvm = toolchain::find().iter().find_map(|t| linker::installed_llvm(t.llvm));
    let Some(llvm) = llvm else { return Ok(None) };
    linker::install(workspace, llvm)?;
    Ok(pair(workspace))
}

/// Installs Debian's second Rust. Debian keeps it up to date for its browsers, and it comes with
/// its library's source.
fn install_from_distribution(workspace: &Workspace) -> Result<()> {
    if !toolchain::find().iter().any(|t| t.cargo.starts_with("/usr/bin")) {
        packages::install(&DEBIAN_RUST)?;
    }
    let toolchains = toolchain::find();
    let Some(toolchain) = toolchains.iter().find(|t| t.cargo.starts_with("/usr/bin")) else {
        bail!("{} did not bring a usable toolchain", DEBIAN_RUST.join(" "));
    };
    if linker::installed_llvm(toolchain.llvm).is_none() {
        // A part of the linker is C++.
        packages::install(&[&format!("llvm-{}-dev", toolchain.llvm), "g++"])?;
    }
    with_installed_llvm(workspace).map(|_| ())
}

const DEBIAN_RUST: [&str; 3] = ["rustc-web", "rust-web-src", "cargo-web"];

fn remedy() -> String {
    let debian = [&DEBIAN_RUST[..], &["llvm-22-dev", "g++"]].concat();
    format!(
        "no Rust toolchain with its library's source, or no bpf-linker that reads its bitcode\n  \
         with rustup:        rustup toolchain install nightly --component rust-src && \
         cargo install bpf-linker\n                      \
         (without LLVM's development files: cargo binstall bpf-linker)\n  \
         on Debian, as root: {}\n                      {}",
        packages::command(&debian),
        linker::command(22),
    )
}

/// The compiler's flags: the same for both programs, so that they share their dependencies.
fn flags(workspace: &Workspace, toolchain: &Toolchain, linker: &Linker) -> Vec<String> {
    let mut flags = vec![
        // aya-ebpf's contexts depend on the machine that the probes run on.
        format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH),
        // Version 3 is the first whose atomics return a value.
        "-Ctarget-cpu=v3".to_owned(),
        format!("-Clinker={}", linker.program.display()),
        "-Clink-arg=--btf".to_owned(),
        "-Cdebuginfo=2".to_owned(),
    ];
    // The object must contain no path of this machine. The last match counts, so the longest path
    // comes last.
    let source = toolchain.source.clone();
    let real_source = toolchain.source.canonicalize().unwrap_or_else(|_| source.clone());
    let mut places =
        vec![(source, "/rust"), (real_source, "/rust"), (workspace.root.clone(), "/sampler")];
    places.extend(cargo_home().map(|home| (home, "/cargo")));
    places.sort_by_key(|(place, _)| place.as_os_str().len());
    places.dedup();
    for (place, name) in places {
        flags.push(format!("--remap-path-prefix={}={name}", place.display()));
    }
    flags
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}

/// Hash of everything that the objects are made of.
fn inputs(
    workspace: &Workspace,
    toolchain: &Toolchain,
    linker: &Linker,
    flags: &[String],
) -> Result<String> {
    let mut stamp = Stamp::default();
    stamp.text(&toolchain.version);
    stamp.text(&linker.version()?);
    flags.iter().for_each(|flag| stamp.text(flag));
    // The checks, which are in this program, are part of a build.
    stamp.file(&env::current_exe().context("find this program")?)?;
    let package = workspace.root.join("sampler-ebpf");
    stamp.tree(&package, &package.join("target"))?;
    let shared = workspace.root.join("sampler-common");
    stamp.tree(&shared.join("src"), Path::new(""))?;
    stamp.file(&shared.join("Cargo.toml"))?;
    stamp.file(&workspace.root.join("Cargo.toml"))?;
    Ok(stamp.finish())
}

/// Hash of the objects themselves, so that a replaced object (for example an empty one) is not up
/// to date.
fn outputs(workspace: &Workspace) -> Result<String> {
    let mut stamp = Stamp::default();
    for (program, _) in PROGRAMS {
        stamp.file(&workspace.objects().join(format!("{program}.bpf.o")))?;
    }
    Ok(stamp.finish())
}

/// Results of compiling one program.
struct Built {
    /// The object.
    object: PathBuf,
    /// The optimized LLVM code as text, from which the linker made the object.
    code: PathBuf,
}

fn compile(
    workspace: &Workspace,
    toolchain: &Toolchain,
    flags: &[String],
    program: &str,
    log: bool,
) -> Result<Built> {
    let directory = workspace.target.join("ebpf-build");
    let release = directory.join(TARGET).join("release");
    let dump = directory.join("code").join(program);
    let built = Built { object: release.join(program), code: dump.join("post-opt.ll") };
    // Cargo does not track the second output. If that output is missing, cargo has to link again.
    if !built.code.is_file() && built.object.is_file() {
        fs::remove_dir_all(release.join(".fingerprint")).context("forget the last build")?;
    }
    let mut command = step::isolated(&toolchain.cargo);
    command
        .current_dir(workspace.root.join("sampler-ebpf"))
        .args(["rustc", "--quiet", "--release", "--bin", program, "--target", TARGET])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(&directory)
        .args(if log { &["--features", "log"][..] } else { &[] })
        .arg("--")
        .arg(format!("-Clink-arg=--dump-module={}", dump.display()))
        // `build-std` is unstable, but works with a stable compiler, too.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    step::run(&format!("compile {program}.bpf.o"), &mut command)?;
    Ok(built)
}

/// Writes an object unless it is unchanged: the daemon's build checks the file's modification time.
fn replace(destination: &Path, object: &[u8]) -> Result<()> {
    if fs::read(destination).is_ok_and(|old| old == object) {
        return Ok(());
    }
    fs::write(destination, object).with_context(|| format!("write {}", destination.display()))
}
