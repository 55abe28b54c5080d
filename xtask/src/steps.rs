//! Named steps of a long command, with their durations and failures.

use std::panic::resume_unwind;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
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

    /// Runs named commands, `lanes` at a time, in their order. The output of a command is printed
    /// when the command has ended. Failures are reported by [`Steps::verdict`].
    pub(crate) fn run_beside(&mut self, lanes: usize, commands: Vec<(&str, Command)>) {
        let waiting = Mutex::new(commands.into_iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let lane = || {
            let mut ended = Vec::new();
            while let Some((name, mut command)) = next() {
                let started = Instant::now();
                let passed = step::run_quietly(name, &mut command);
                ended.push((name.to_owned(), started.elapsed(), passed));
            }
            ended
        };
        let ended: Vec<_> = thread::scope(|scope| {
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            let lanes = lanes.into_iter().map(thread::ScopedJoinHandle::join);
            lanes.flat_map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        for (name, duration, passed) in ended {
            if let Err(error) = passed {
                eprintln!("FAILED: {error:#}");
                self.failed.push(name.clone());
            }
            self.durations.push((name, Some(duration)));
        }
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
    fn every_command_beside_another_runs_and_failures_are_named() {
        let mut steps = Steps::default();
        let shell = |name: &'static str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {name}")]);
            (name, command)
        };
        steps.run_beside(2, ["0", "1", "00", "2"].map(shell).into());
        let mut ran: Vec<&str> = steps.durations.iter().map(|(name, _)| name.as_str()).collect();
        ran.sort_unstable();
        assert_eq!(ran, ["0", "00", "1", "2"]);
        steps.failed.sort_unstable();
        assert_eq!(steps.failed, ["1", "2"]);
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
