//! Runs `sampler-inject`: one short-lived process for each operation, so that whatever goes wrong ends with it. samplerd itself traces nobody.

use crate::installed;
use std::path::PathBuf;
use std::process::Command;

/// The program of an operation, and the library that it puts in.
const HELPER: &str = "sampler-inject";
const LIBRARY: &str = "libsampler_preload.so";

/// The installed program and the library.
#[derive(Clone, Debug)]
pub struct Injector {
    helper: PathBuf,
    library: PathBuf,
}

impl Injector {
    /// Finds both beside samplerd.
    ///
    /// # Errors
    /// One line with the remedy.
    pub fn find() -> Result<Injector, String> {
        let find = |name: &str| {
            installed::find(name).ok_or_else(|| {
                format!("{name} is not beside samplerd (cargo build --release --bins and cargo xtask build-preload make both)")
            })
        };
        Ok(Injector { helper: find(HELPER)?, library: find(LIBRARY)? })
    }

    /// Puts the sampler into a process; what was done, in one line.
    ///
    /// # Errors
    /// One line: why the process is left alone, or what went wrong.
    pub fn inject(&self, pid: u32, interval_bytes: u64) -> Result<String, String> {
        let mut command = self.command("inject", pid);
        command.arg("--library").arg(&self.library);
        run(command.args(["--interval", &interval_bytes.to_string()]))
    }

    /// Takes it out.
    ///
    /// # Errors
    /// As of [`Injector::inject`].
    pub fn eject(&self, pid: u32) -> Result<String, String> {
        run(&mut self.command("eject", pid))
    }

    /// Looks by reading alone whether it could be put in: the process is not touched.
    ///
    /// # Errors
    /// As of [`Injector::inject`].
    pub fn examine(&self, pid: u32) -> Result<String, String> {
        run(self.command("examine", pid).arg("--library").arg(&self.library))
    }

    fn command(&self, verb: &str, pid: u32) -> Command {
        let mut command = Command::new(&self.helper);
        command.args([verb, "--pid", &pid.to_string()]);
        command
    }
}

/// Runs an operation; its line.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("start {HELPER}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim().lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(line),
        false if line.is_empty() => Err(format!("{HELPER} ended with {}", output.status)),
        false => Err(line.trim_start_matches("refused: ").to_owned()),
    }
}
