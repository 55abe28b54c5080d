//! `--inject`: the in-process sampler goes into the running processes, and out again at the end.
//!
//! Each operation is a child process of its own (`sampler-inject`), so that whatever goes wrong ends with it. samplerd itself traces nobody.

use anyhow::{Result, anyhow};
use sampler_daemon::installed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program of an operation, and the library that it puts in.
const HELPER: &str = "sampler-inject";
const LIBRARY: &str = "libsampler_preload.so";

/// What becomes of the sampler in the processes when samplerd ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AtEnd {
    /// It is taken out
    #[default]
    Eject,
    /// It stays in, and sleeps until a samplerd listens
    Leave,
}

/// Processes with the sampler in them. Dropping it takes the sampler out.
pub(crate) struct Injected {
    helper: PathBuf,
    pids: Vec<u32>,
}

impl Injected {
    /// Puts the sampler into every one of the processes.
    ///
    /// # Errors
    /// One line, if a process is refused; nothing is left in the others.
    pub(crate) fn put_in(pids: &[u32], interval_bytes: u64) -> Result<Injected> {
        let (helper, library) = (find(HELPER)?, find(LIBRARY)?);
        let mut injected = Injected { helper, pids: Vec::new() };
        for pid in pids {
            let mut command = injected.command("inject", *pid);
            command.arg("--library").arg(&library);
            command.args(["--interval", &interval_bytes.to_string()]);
            let line = run(&mut command).map_err(|why| refusal(*pid, &why))?;
            tracing::info!(pid, "the sampler is in: {line}");
            injected.pids.push(*pid);
        }
        Ok(injected)
    }

    /// The sampler stays in the processes.
    pub(crate) fn leave(mut self) {
        self.pids.clear();
    }

    fn command(&self, verb: &str, pid: u32) -> Command {
        let mut command = Command::new(&self.helper);
        command.args([verb, "--pid", &pid.to_string()]);
        command
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        for pid in &self.pids {
            match run(&mut self.command("eject", *pid)) {
                Ok(line) => tracing::info!(pid, "the sampler is out: {line}"),
                Err(_) if !Path::new(&format!("/proc/{pid}")).exists() => {}
                Err(why) => {
                    tracing::warn!(
                        pid,
                        "the sampler stays in, and sleeps: {why} (sampler-inject eject --pid {pid})"
                    );
                }
            }
        }
    }
}

/// What a refused process is answered.
fn refusal(pid: u32, why: &str) -> anyhow::Error {
    let why = why.trim_start_matches("refused: ");
    anyhow!(
        "--inject: pid {pid}: {why} (without --inject probes are used, and --windows 1% bounds their cost)"
    )
}

/// Runs an operation; its line.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("start {HELPER}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim().lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(line),
        false if line.is_empty() => Err(format!("{HELPER} ended with {}", output.status)),
        false => Err(line),
    }
}

/// A file that is installed with samplerd.
fn find(name: &str) -> Result<PathBuf> {
    installed::find(name).ok_or_else(|| {
        anyhow!(
            "--inject: {name} is not beside samplerd (cargo build --release --bins and cargo xtask build-preload make both)"
        )
    })
}
