//! A program that allocates in a known way (`workloads/budget.c`), and its profile under
//! `--windows`.

use crate::child::Child;
use crate::{Daemon, build};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const SIGUSR1: i32 = 10;

/// Confidence of intervals that a right implementation misses less than once in a million runs.
pub const NEAR_CERTAIN_CONFIDENCE: &str = "0.999999";
/// How long the tests wait for windows. A busy machine needs most of this time.
pub const WINDOWS_DEADLINE: Duration = Duration::from_secs(150);

/// The running program.
pub struct Program(pub Child);

impl Program {
    /// Starts the program; `arguments` say how it allocates.
    ///
    /// # Errors
    /// If the program does not start.
    pub fn start(arguments: &[&str]) -> Result<Program> {
        let program = build::compile("budget.c", &[])?;
        let mut child = Child::start("budget", Command::new(program).args(arguments))?;
        ensure!(child.line()? == "ready", "no ready line");
        Ok(Program(child))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// What the program has allocated so far.
    ///
    /// # Errors
    /// If the program does not answer.
    pub fn truth(&mut self) -> Result<Value> {
        self.0.signal(SIGUSR1)?;
        Ok(serde_json::from_str(&self.0.line()?)?)
    }
}

/// A number of the truth: column `which` of the call site `site`.
pub fn at(truth: &Value, site: &str, which: usize) -> f64 {
    truth[site][which].as_f64().unwrap_or(f64::NAN)
}

/// The profile as json.
///
/// # Errors
/// If samplerd does not answer.
pub fn profile(daemon: &Daemon, confidence: &str) -> Result<Value> {
    let arguments = ["profile", "--format", "json", "--confidence", confidence];
    let finished = daemon.sampler(&arguments)?.success("sampler profile")?;
    Ok(serde_json::from_slice(&finished.stdout)?)
}

/// Number of windows that represent process 0.
pub fn windows(profile: &Value) -> u64 {
    profile["reference"]["clusters"][0]["windows"].as_u64().unwrap_or(0)
}
