//! Named steps of a long command, with their durations and failures.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::step;
use crate::workspace::Workspace;

/// Steps in the order in which they ran.
#[derive(Default)]
pub(crate) struct Steps {
    durations: Vec<(String, Option<Duration>)>,
    failed: Vec<String>,
}

impl Steps {
    /// Runs a step.
    ///
    /// # Errors
    /// The step's own error, with its name.
    pub(crate) fn time<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = step().with_context(|| name.to_owned())?;
        self.durations.push((name.to_owned(), Some(started.elapsed())));
        Ok(result)
    }

    /// Runs cargo with these arguments.
    ///
    /// # Errors
    /// If cargo cannot be started or does not exit with 0.
    pub(crate) fn cargo(
        &mut self,
        workspace: &Workspace,
        name: &str,
        arguments: &[&str],
    ) -> Result<()> {
        self.time(name, || step::run(name, workspace.cargo().args(arguments)))
    }

    /// Runs a command. [`Steps::verdict`] reports a failure later, so that the next step runs
    /// anyway.
    pub(crate) fn run_or_note(&mut self, name: &str, command: &mut Command) {
        let started = Instant::now();
        if let Err(error) = step::run(name, command) {
            eprintln!("FAILED: {error:#}");
            self.failed.push(name.to_owned());
        }
        self.durations.push((name.to_owned(), Some(started.elapsed())));
    }

    /// Records a step that cannot run here.
    pub(crate) fn skip(&mut self, name: &str) {
        self.durations.push((name.to_owned(), None));
    }

    /// Prints the steps in their order.
    pub(crate) fn print(&self) {
        print("steps", self.durations.iter());
    }

    /// Prints the `count` slowest steps.
    pub(crate) fn print_slowest(&self, count: usize) {
        let mut sorted: Vec<_> = self.durations.iter().collect();
        sorted.sort_by_key(|(_, duration)| std::cmp::Reverse(*duration));
        print("slowest steps", sorted.into_iter().take(count));
    }

    /// Total duration of all steps.
    pub(crate) fn total(&self) -> Duration {
        self.durations.iter().filter_map(|(_, duration)| *duration).sum()
    }

    /// Checks that all steps passed.
    ///
    /// # Errors
    /// If a step failed; the text names all failed steps.
    pub(crate) fn verdict(&self) -> Result<()> {
        if !self.failed.is_empty() {
            bail!("failed: {}", self.failed.join(", "));
        }
        Ok(())
    }
}

fn print<'s>(title: &str, steps: impl Iterator<Item = &'s (String, Option<Duration>)>) {
    eprintln!("\n{title}:");
    for (name, duration) in steps {
        match duration {
            Some(duration) => eprintln!("  {:>7.1} s  {name}", duration.as_secs_f64()),
            None => eprintln!("  NOT RUN    {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_named_in_the_verdict() {
        let mut steps = Steps::default();
        assert!(steps.verdict().is_ok());
        steps.failed.push("leaks".to_owned());
        assert_eq!(steps.verdict().unwrap_err().to_string(), "failed: leaks");
    }

    #[test]
    fn the_total_leaves_out_skipped_steps() {
        let mut steps = Steps::default();
        steps.skip("rustfmt");
        steps.time("work", || Ok(())).unwrap();
        assert_eq!(steps.durations.len(), 2);
        assert!(steps.total() < Duration::from_secs(5));
    }
}
