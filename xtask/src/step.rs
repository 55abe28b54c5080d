//! Runs other programs: controls what they inherit, and reports durations and failures.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs `command` with its output on the terminal, and prints its duration.
///
/// # Errors
/// If the command cannot be started or does not exit with 0; `what` names it.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("==> {what}");
    let started = Instant::now();
    let status =
        command.status().with_context(|| format!("start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{what}: {} ended with {status}", command.get_program().display());
    }
    eprintln!("    {what}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs `command`, and prints its output and its duration when it has ended.
///
/// # Errors
/// As for [`run`].
pub(crate) fn run_quietly(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("==> {what} begins");
    let started = Instant::now();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    let [out, error] = [&output.stdout, &output.stderr].map(|of| String::from_utf8_lossy(of));
    // One write: the lines of two commands do not mix.
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("==> {what}\n{error}{out}    {what}: {seconds:.1} s");
    if !output.status.success() {
        bail!("{what}: {} ended with {}", command.get_program().display(), output.status);
    }
    Ok(())
}

/// Returns the standard output of `command`.
///
/// # Errors
/// If the command cannot be started, does not exit with 0 (the text has its last error line), or
/// writes no UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().rfind(|line| !line.is_empty()).unwrap_or("no error text");
        bail!("{} ended with {}: {last}", program.display(), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("read from {}", program.display()))
}

/// Path of the cargo that runs this program. The rest of its toolchain lies in the same directory.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Makes a command of a toolchain that must not use the toolchain that runs this program.
///
/// The children of `cargo xtask` inherit the outer cargo's `CARGO_*` and `RUST*` variables and its
/// library path, and a `PATH` that begins with rustup's proxies. The command keeps only the
/// variables for the network, the number of jobs, and the places of downloads.
pub(crate) fn isolated(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if !kept(&name) {
            command.env_remove(name);
        }
    }
    if let Some(bin) = program.parent() {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = std::iter::once(bin.to_owned()).chain(env::split_paths(&path));
        // A directory with a colon cannot be in PATH. The old PATH is then used.
        if let Ok(path) = env::join_paths(directories) {
            command.env("PATH", path);
        }
        let compiler = bin.join("rustc");
        if compiler.is_file() {
            command.env("RUSTC", compiler);
        }
    }
    command
}

fn kept(name: &OsStr) -> bool {
    const KEPT_VARIABLES: [&str; 5] =
        ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_BUILD_JOBS"];
    // With cargo's dynamic library path, one compiler would load the other's LLVM.
    const DROPPED: [&str; 4] = ["CARGO", "RUSTC", "RUSTDOC", "LD_LIBRARY_PATH"];
    const DROPPED_WHOLE: [&str; 2] = ["RUSTFLAGS", "RUSTUP_TOOLCHAIN"];
    let Some(name) = name.to_str() else { return true };
    KEPT_VARIABLES.iter().any(|prefix| name.starts_with(prefix))
        || !(DROPPED.iter().any(|prefix| name.starts_with(prefix)) || DROPPED_WHOLE.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_variables_are_kept_and_toolchain_ones_dropped() {
        for name in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_NET_OFFLINE", "HOME", "RUSTUP_HOME"] {
            assert!(kept(OsStr::new(name)), "{name}");
        }
        for name in [
            "CARGO",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTDOCFLAGS",
            "RUSTUP_TOOLCHAIN",
            "LD_LIBRARY_PATH",
        ] {
            assert!(!kept(OsStr::new(name)), "{name}");
        }
    }
}
