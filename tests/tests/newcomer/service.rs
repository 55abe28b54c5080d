//! The services, each with one leak (`workloads/newcomer/`).

use anyhow::{Context, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::Child;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A service.
pub(crate) struct Service {
    /// Its source.
    pub(crate) source: &'static str,
    /// The function that leaks, as a profile names it.
    pub(crate) function: &'static str,
    /// Text of the line that allocates what is kept.
    pub(crate) line: &'static str,
    /// Whether the table of functions, which is short, has the function, too.
    pub(crate) is_in_table: bool,
    /// How it is started; `None` for a program that is compiled.
    pub(crate) interpreter: Option<&'static str>,
}

impl Service {
    fn path(&self) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/newcomer");
        PathBuf::from(folder).join(self.source)
    }

    /// Starts the service, as its owner does. `options` are for the interpreter.
    pub(crate) fn start(&self, options: &[&str]) -> Result<Child> {
        let mut command = match self.interpreter {
            Some(interpreter) => {
                let mut command = Command::new(interpreter);
                command.args(options).arg(self.path());
                command
            }
            None => Command::new(build::compile(&format!("newcomer/{}", self.source), &[])?),
        };
        // node writes a log into its folder.
        command.current_dir(std::env::temp_dir());
        let mut child = Child::start(self.source, &mut command)?;
        ensure!(child.line()? == "waiting", "{} must say that it runs", self.source);
        Ok(child)
    }

    /// The place of the leak as text names it: `file.py:12`.
    pub(crate) fn place(&self) -> Result<String> {
        let text = fs::read_to_string(self.path()).context("read the service")?;
        let number = text.lines().position(|line| line.contains(self.line));
        let number = number.with_context(|| format!("{} has no {:?}", self.source, self.line))?;
        Ok(format!("{}:{}", self.source, number + 1))
    }
}
