//! The services, each with one leak (`workloads/newcomer/`).

use crate::place::Place;
use crate::readme;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use std::fs;
use std::process::Command;

/// The folder of the services in the repository.
const FOLDER: &str = "tests/workloads/newcomer";

/// A service.
pub(crate) struct Service {
    /// Its source.
    pub(crate) source: &'static str,
    /// The function that leaks, as a profile names it.
    pub(crate) function: &'static str,
    /// Text of the line that allocates what is kept.
    pub(crate) line: &'static str,
    /// How it is started; `None` for a program that is compiled.
    pub(crate) interpreter: Option<&'static str>,
}

impl Service {
    /// Starts the service, as its owner does. `options` are for the interpreter.
    pub(crate) fn start(&self, place: &Place, options: &[&str]) -> Result<Child> {
        let path = format!("{FOLDER}/{}", self.source);
        let program = match self.interpreter {
            Some(interpreter) => [&[interpreter], options, &[path.as_str()]].concat(),
            None => {
                place.run(&format!("c++ -O2 -g -o service {path}"))?;
                vec!["./service"]
            }
        };
        let words = place.entering(&program);
        let mut child = Child::start(self.source, Command::new(&words[0]).args(&words[1..]))?;
        ensure!(child.line()? == "waiting", "{} must say that it runs", self.source);
        Ok(child)
    }

    /// The place of the leak as text names it: `file.py:12`.
    pub(crate) fn place(&self) -> Result<String> {
        let path = readme::root().join(FOLDER).join(self.source);
        let text = fs::read_to_string(path).context("read the service")?;
        let number = text.lines().position(|line| line.contains(self.line));
        let number = number.with_context(|| format!("{} has no {:?}", self.source, self.line))?;
        Ok(format!("{}:{}", self.source, number + 1))
    }
}
