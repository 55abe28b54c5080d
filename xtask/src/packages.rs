//! Distribution packages: installs them with apt where possible, and names them otherwise.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{step, workspace};

/// Whether this process may install packages and load eBPF programs.
pub(crate) fn is_root() -> bool {
    // The owner of /proc/self is the effective user. So no system call of our own is needed.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether this process can install packages: on Debian or a derivative, as root.
pub(crate) fn can_install() -> bool {
    is_root() && workspace::in_path("apt-get").is_some()
}

/// Installs packages without asking.
///
/// # Errors
/// If apt-get fails, for example because this distribution has no package of that name.
pub(crate) fn install<S: AsRef<str>>(packages: &[S]) -> Result<()> {
    let names: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
    let list = names.join(" ");
    // If the update fails, an older list may still do.
    apt().arg("update").status().context("start apt-get update")?;
    let mut command = apt();
    command.args(["install", "--yes", "--no-install-recommends"]).args(&names);
    step::run(&format!("install {list}"), &mut command)
}

/// The shell command that does the same as [`install`].
pub(crate) fn command<S: AsRef<str>>(packages: &[S]) -> String {
    let names: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
    format!("apt-get update && apt-get install --yes {}", names.join(" "))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    // Only standard output is discarded: errors go to standard error.
    command.arg("--quiet=2").env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    command
}

/// A package, and a file or program that shows that the package (or an equivalent one) is
/// installed.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Name of the package in Debian.
    package: &'static str,
    /// A program's name in `PATH`, or an absolute path.
    shown_by: &'static str,
    /// Purpose of the package.
    purpose: &'static str,
}

const fn need(package: &'static str, shown_by: &'static str, purpose: &'static str) -> Need {
    Need { package, shown_by, purpose }
}

/// Packages for compiling the workspace.
pub(crate) const BUILD: [Need; 1] = [need("gcc", "cc", "links programs, compiles the allocator")];

/// Additional packages for making the Debian package.
pub(crate) const PACKAGE: [Need; 1] =
    [need("dpkg-dev", "dpkg-shlibdeps", "finds what the package depends on")];

/// Additional packages for testing the Debian package.
pub(crate) const PACKAGE_TEST: [Need; 2] =
    [need("lintian", "lintian", "checks the package"), NEWCOMER[0]];

/// Additional packages for following README.md in a new Debian.
pub(crate) const NEWCOMER: [Need; 1] =
    [need("mmdebstrap", "mmdebstrap", "makes a Debian to install sampler in")];

/// The programs and profilers of `bench tools`.
pub(crate) const TOOLS: [Need; 14] = [
    need("bpfcc-tools", "/usr/sbin/memleak-bpfcc", "a profiler to compare with"),
    need("bpftrace", "/usr/bin/bpftrace", "a profiler to compare with"),
    need("g++", "g++", "a program to profile"),
    need("heaptrack", "/usr/lib/heaptrack/libheaptrack_preload.so", "a profiler to compare with"),
    need("jq", "/usr/bin/jq", "a program to profile"),
    need(
        "libgoogle-perftools4",
        "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4",
        "a profiler to compare with",
    ),
    need(
        "libjemalloc2",
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
        "a profiler to compare with",
    ),
    need("librsvg2-bin", "/usr/bin/rsvg-convert", "makes PNGs of the plots"),
    need("linux-headers-amd64", "/usr/share/doc/linux-headers-amd64/copyright", "compiles memleak"),
    need("perl", "/usr/bin/perl", "a program to profile"),
    need("python3", "/usr/bin/python3", "a program to profile"),
    need("redis-server", "/usr/bin/redis-server", "a program to profile"),
    need("redis-tools", "/usr/bin/redis-benchmark", "puts load on redis-server"),
    need("sqlite3", "/usr/bin/sqlite3", "a program to profile"),
];

/// Additional packages for the tests.
const TEST: [Need; 39] = [
    need("bindfs", "/usr/bin/bindfs", "a file system of a user"),
    need("bpftrace", "/usr/bin/bpftrace", "a consumer of the otel_memory contract"),
    need("binutils", "nm", "symbols for the tools that open profiles"),
    need("openssl", "openssl", "a server that is certified"),
    need("chromium", "/usr/bin/chromium", "shows the web page"),
    need("chromium-driver", "chromedriver", "drives it"),
    need("debuginfod", "/usr/bin/debuginfod", "serves debug files"),
    need("dwz", "dwz", "compacts debug information"),
    need("fuse3", "/usr/bin/fusermount3", "mounts a file system of a user"),
    need("g++", "c++", "compiles the C++ workloads"),
    need("gdb", "/usr/bin/gdb", "the oracle for stacks"),
    need("git", "git", "a program that must not change"),
    need("golang-go", "go", "opens the pprof files"),
    need("google-perftools", "google-pprof", "opens the heap_v2 files"),
    need("libjemalloc-dev", "jeprof", "opens the heap_v2 files"),
    need("libjemalloc2", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "an allocator to profile"),
    need(
        "libmimalloc2.0",
        "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0",
        "an allocator to profile",
    ),
    need(
        "libtbbmalloc2",
        "/usr/lib/x86_64-linux-gnu/libtbbmalloc_proxy.so.2",
        "an allocator to profile",
    ),
    need(
        "libtcmalloc-minimal4",
        "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
        "an allocator to profile",
    ),
    need(
        "libgoogle-perftools4",
        "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4",
        "an allocator to profile",
    ),
    need("make", "make", "compiles the jemalloc of a workload"),
    need("mandoc", "mandoc", "checks the manual pages"),
    need("nginx", "/usr/sbin/nginx", "a program to inject"),
    need("nodejs", "node", "a program that must not change"),
    need("musl-tools", "musl-gcc", "compiles a workload with another libc"),
    need("perl", "/usr/bin/perl", "a program to profile"),
    need("php8.2-cli", "php", "a runtime that generates code"),
    need("php8.2-opcache", "/usr/lib/php/20220829/opcache.so", "the code generator of php"),
    need("postgresql", "/usr/lib/postgresql/15/bin/initdb", "a program to inject"),
    need("procps", "kill", "sends signals"),
    need("python3", "/usr/bin/python3", "a program to profile, and a generic client"),
    need(
        "python3-venv",
        "/usr/share/doc/python3-venv/copyright",
        "makes an environment for SQL engines",
    ),
    need("redis-server", "/usr/bin/redis-server", "a program to profile"),
    need("redis-tools", "/usr/bin/redis-benchmark", "lets redis-server work"),
    need("ruby", "ruby", "a runtime that generates code"),
    need("sqlite3", "/usr/bin/sqlite3", "a program to profile"),
    need("strace", "/usr/bin/strace", "traces a program that must not be touched then"),
    need("systemd", "/usr/bin/systemd-analyze", "rates the unit file"),
    need("xz-utils", "xz", "compresses symbol tables"),
];

/// Large packages that only `cargo xtask test --long` needs.
const LONG: [Need; 2] = [
    need("mariadb-server", "/usr/sbin/mariadbd", "a program to inject"),
    need("openjdk-17-jdk-headless", "javac", "a program to inject"),
];

/// All packages that `cargo xtask test` needs.
pub(crate) fn all(is_long: bool) -> Vec<Need> {
    let long = if is_long { [&LONG[..], &PACKAGE, &PACKAGE_TEST].concat() } else { Vec::new() };
    [&BUILD, &TEST[..], &long].concat()
}

/// Installs missing packages.
///
/// # Errors
/// If a package is missing and cannot be installed from here; the text gives the command.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if can_install() {
        return install(&packages);
    }
    let list: Vec<String> = missing
        .iter()
        .map(|need| format!("{} is missing: {}", need.shown_by, need.purpose))
        .collect();
    bail!("{}\n  on Debian, as root: {}", list.join("\n  "), command(&packages));
}

impl Need {
    fn is_met(&self) -> bool {
        match Path::new(self.shown_by) {
            absolute if absolute.is_absolute() => absolute.is_file(),
            _ => workspace::in_path(self.shown_by).is_some(),
        }
    }
}

/// Checks that this process runs as root.
///
/// # Errors
/// If this process is not root; the text gives the command to run.
pub(crate) fn require_root(reason: &str, verb: &str) -> Result<()> {
    if !is_root() {
        bail!("{reason}, which takes root: run sudo -E env \"PATH=$PATH\" cargo xtask {verb}");
    }
    Ok(())
}
