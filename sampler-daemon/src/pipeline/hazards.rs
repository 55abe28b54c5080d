//! What would harm a process that is about to be probed.

use super::worker::Worker;
use crate::bpf::ProbeEngine;
use crate::bpf::filtered::returns_pass;
use crate::target::hazard::{self, Hazard};
use rustc_hash::FxHashSet;

impl Worker {
    /// What would harm process `pid`, if anything.
    pub(super) fn hazard(&mut self, pid: u32) -> Option<Hazard> {
        let diverted = || self.diverted().contains(&pid).then_some(Hazard::Diverted);
        hazard::check(pid, returns_pass).or_else(diverted)
    }

    /// Processes in which no return may be probed, where that is not decided call by call. Session probes decide it, but only the process's
    /// own: to another process's session link on the same file the kernel answers that every return is wanted.
    pub(super) fn diverted(&mut self) -> FxHashSet<u32> {
        let decides = self.kernel.engine() == ProbeEngine::Session;
        let is_alone = !self.has_own_links() || !self.config.settings.shares;
        if decides && is_alone || !hazard::returns_make_calls() {
            return FxHashSet::default();
        }
        self.kernel.diverted().unwrap_or_else(|error| {
            tracing::warn!("not known which processes a return probe would kill: {error:#}");
            FxHashSet::default()
        })
    }

    /// Refuses links that processes share where these would kill one.
    pub(super) fn refuse_diverted(&mut self) -> anyhow::Result<()> {
        if self.has_own_links() {
            return Ok(());
        }
        match self.diverted().iter().min() {
            Some(pid) => anyhow::bail!("pid {pid}: {}", Hazard::Diverted),
            None => Ok(()),
        }
    }
}
