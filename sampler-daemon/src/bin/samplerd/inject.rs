//! `--inject`: puts the in-process sampler into the running processes, and takes it out at the end.

use crate::args::Args;
use anyhow::{Result, anyhow};
use sampler_daemon::injector::Injector;
use sampler_daemon::inspect::hazard::{Hazard, is_go};
use sampler_daemon::inspect::process::Process;
use sampler_daemon::pipeline::Injecting;

/// What becomes of the sampler in the processes when samplerd ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AtEnd {
    /// It is taken out
    #[default]
    Eject,
    /// It stays in, and sleeps until a samplerd listens
    Leave,
}

/// Processes with the sampler in them. Dropping this value takes the sampler out, unless it is to
/// stay.
pub(crate) struct Injected {
    injector: Injector,
    at_end: AtEnd,
}

impl Injected {
    /// Puts the sampler into each of the given processes. With `--follow`, a refused process is
    /// left alone, logged, and listed as blind. Of several processes, one may end meanwhile.
    ///
    /// # Errors
    /// One line, if a process is refused. Then the sampler is taken out of the other processes.
    pub(crate) fn put_in(args: &Args, processes: &[Process], at_end: AtEnd) -> Result<Injected> {
        let injector = Injector::find().map_err(|error| anyhow!("--inject: {error}"))?;
        let injected = Injected { injector, at_end };
        for process in processes {
            let pid = process.pid;
            // Such a process is refused after the injection, too: it must not be changed before.
            if is_go(pid) {
                match args.follow {
                    true => tracing::warn!(pid, "--inject: {}", Hazard::Go),
                    false => return Err(anyhow!("--inject: pid {pid}: {}", Hazard::Go)),
                }
                continue;
            }
            match injected.injector.inject(pid, args.sampling().interval_bytes) {
                Ok(line) => tracing::info!(pid, "the sampler is in: {line}"),
                Err(why) if args.follow => tracing::warn!(pid, "--inject: {why}"),
                Err(_) if processes.len() > 1 && !process.is_running() => {}
                Err(why) => return Err(refusal(pid, &why)),
            }
        }
        Ok(injected)
    }

    /// Returns how processes are injected that start later.
    pub(crate) fn for_those_to_come(&self, args: &Args) -> Injecting {
        Injecting {
            injector: self.injector.clone(),
            interval_bytes: args.sampling().interval_bytes,
            only: args.inject_only.clone(),
        }
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        if self.at_end == AtEnd::Eject {
            self.injector.eject_all();
        }
    }
}

/// Makes the error for a refused process.
fn refusal(pid: u32, why: &str) -> anyhow::Error {
    anyhow!(
        "--inject: pid {pid}: {why} (without --inject probes are used, and --windows 1% bounds their cost)"
    )
}
