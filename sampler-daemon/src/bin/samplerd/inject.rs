//! `--inject`: the in-process sampler goes into the running processes, and out again at the end.

use anyhow::{Result, anyhow};
use sampler_daemon::injector::Injector;
use std::path::Path;

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
    pids: Vec<u32>,
}

impl Injected {
    /// Puts the sampler into every one of the processes.
    ///
    /// # Errors
    /// One line, if a process is refused; nothing is left in the others.
    pub(crate) fn put_in(pids: &[u32], interval_bytes: u64) -> Result<Injected> {
        let injector = Injector::find().map_err(|error| anyhow!("--inject: {error}"))?;
        let mut injected = Injected { injector, pids: Vec::new() };
        for pid in pids {
            let done = injected.injector.inject(*pid, interval_bytes);
            let line = done.map_err(|why| refusal(*pid, &why))?;
            tracing::info!(pid, "the sampler is in: {line}");
            injected.pids.push(*pid);
        }
        Ok(injected)
    }

    /// The sampler stays in the processes.
    pub(crate) fn leave(mut self) {
        self.pids.clear();
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        for pid in &self.pids {
            match self.injector.eject(*pid) {
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
    anyhow!(
        "--inject: pid {pid}: {why} (without --inject probes are used, and --windows 1% bounds their cost)"
    )
}
