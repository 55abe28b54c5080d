//! `--inject`: the in-process sampler goes into the running processes, and out again at the end.

use crate::args::Args;
use anyhow::{Result, anyhow};
use sampler_daemon::injector::Injector;
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

/// Processes with the sampler in them. Dropping it takes the sampler out.
pub(crate) struct Injected {
    injector: Injector,
    at_end: AtEnd,
}

impl Injected {
    /// Puts the sampler into every one of the given processes. With processes that come by themselves, those that are refused are left
    /// alone: they are listed as blind.
    ///
    /// # Errors
    /// One line, if a process is refused; nothing is left in the others.
    pub(crate) fn put_in(args: &Args, at_end: AtEnd) -> Result<Injected> {
        let injector = Injector::find().map_err(|error| anyhow!("--inject: {error}"))?;
        let injected = Injected { injector, at_end };
        for pid in &args.pids {
            match injected.injector.inject(*pid, args.sampling().interval_bytes) {
                Ok(line) => tracing::info!(pid, "the sampler is in: {line}"),
                Err(why) if args.follow => tracing::warn!(pid, "--inject: {why}"),
                Err(why) => return Err(refusal(*pid, &why)),
            }
        }
        Ok(injected)
    }

    /// How processes are injected that come by themselves.
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

/// What a refused process is answered.
fn refusal(pid: u32, why: &str) -> anyhow::Error {
    anyhow!(
        "--inject: pid {pid}: {why} (without --inject probes are used, and --windows 1% bounds their cost)"
    )
}
