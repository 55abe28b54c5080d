//! Looks over all processes of the machine: for allocators that nobody has called yet, and for what events have missed.
//!
//! Where the kernel tells of new mappings this is a repair, and rare; else it is how allocators are found.

use super::worker::Worker;
use crate::target::discovery::Discovery;
use crate::target::mappings;
use crate::target::process::pids;
use rustc_hash::FxHashSet;
use std::time::{Duration, Instant};

/// How often new processes are looked for, without events and with them.
const PERIOD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// How often every process is looked at again.
const ROUND: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];
/// Longest time that is spent on it at once: samples wait meanwhile.
const TURN: Duration = Duration::from_millis(5);

/// What has been looked at.
#[derive(Default)]
pub(super) struct Survey {
    began: Option<Instant>,
    next: Option<Instant>,
    next_round: Option<Instant>,
    known: FxHashSet<u32>,
    /// Processes that are still to be looked at.
    waiting: Vec<u32>,
    /// Allocators met in the round so far, by device and inode; none between rounds.
    round: Option<FxHashSet<(u64, u64)>>,
}

impl Survey {
    /// Everything is looked at again, soon.
    pub(super) fn repair(&mut self) {
        self.next = self.began.map(|began| began + PERIOD[0]);
        self.next_round = None;
    }

    /// Every process is looked at again before long.
    pub(super) fn look_round_soon(&mut self) {
        let soon = Instant::now() + ROUND[0];
        self.next_round = self.next_round.map(|next| next.min(soon));
    }

    /// Not before the last one has ended.
    fn is_due(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.next.is_none_or(|next| next <= now)
    }
}

impl Worker {
    /// Looks at processes, where it is time to, for some milliseconds at most.
    pub(super) fn survey(&mut self) {
        if self.is_open() {
            self.survey_for(TURN);
        }
    }

    /// Looks at processes, where it is time to, for so long at most.
    pub(super) fn survey_for(&mut self, most: Duration) {
        let now = Instant::now();
        if self.survey.is_due(now) {
            self.begin_survey(now);
        }
        while let Some(pid) = self.survey.waiting.pop() {
            self.look_at(pid);
            if now.elapsed() > most {
                break;
            }
        }
        if self.survey.waiting.is_empty()
            && let Some(met) = self.survey.round.take()
        {
            self.close_unmapped(&met);
        }
    }

    fn begin_survey(&mut self, now: Instant) {
        let told = usize::from(self.happenings.are_told());
        self.survey.began = Some(now);
        self.survey.next = Some(now + PERIOD[told]);
        let gone = self.gone(&self.slots());
        self.detach_gone(&gone);
        self.look_at_refused();
        let own = std::process::id();
        let pids = if self.is_tree() { self.tree_pids() } else { pids() };
        let pids: FxHashSet<u32> = pids.into_iter().filter(|pid| *pid != own).collect();
        self.note_members(&pids);
        self.coverage.retain(|pid| pids.contains(&pid));
        self.excluded.retain(|pid| pids.contains(&pid));
        let is_round = self.survey.next_round.is_none_or(|next| next <= now);
        if is_round {
            self.survey.next_round = Some(now + ROUND[told]);
            self.survey.round = Some(FxHashSet::default());
            self.survey.waiting = pids.iter().copied().collect();
        } else {
            let new = pids.difference(&self.survey.known);
            self.survey.waiting.extend(new);
        }
        self.survey.known = pids;
    }

    /// Attaches to the allocators of a process.
    pub(super) fn look_at(&mut self, pid: u32) {
        let is_spared = self.is_spared(pid);
        // What an excluded process of a tree forks is profiled, and has its files.
        if is_spared && !self.is_tree() {
            return;
        }
        // A kernel thread has none, and a process that cannot be read is exiting.
        let discovery = self.discover(pid);
        if !is_spared && let Some(hazard) = self.hazard_of(pid) {
            self.refuse(pid, hazard);
            return;
        }
        let Ok(discovery) = discovery else { return };
        self.end_refusal(pid);
        if self.happenings.are_told() {
            self.ingest.history.met(pid, || mappings::executable(pid));
        }
        if !is_spared {
            self.coverage.look(pid, &discovery);
        }
        // Whatever has a link is met: one that is not is closed in the end.
        if let Some(met) = &mut self.survey.round {
            met.extend(discovery.files().map(|of| of.identity));
        }
        if discovery.is_sampled && !is_spared {
            self.take_in_silent(pid);
        }
        self.attach_found(pid, &discovery);
    }

    /// Attaches for all processes to what was found in one, or in a file that it has mapped.
    pub(super) fn attach_found(&mut self, pid: u32, found: &Discovery) {
        if self.has_own_links() {
            return;
        }
        let Worker { links, kernel, .. } = self;
        for sampler in &found.samplers {
            if let Err(error) = links.attach_shared_sampler(kernel, sampler) {
                tracing::warn!(pid, path = sampler.allocator.path, "{error:#}");
            }
        }
        for allocator in &found.allocators {
            if let Err(error) = links.attach_shared(kernel, allocator) {
                tracing::warn!(pid, path = allocator.path, "{error:#}");
            }
        }
        self.leave_out_for_all(&found.patched);
    }

    /// Closes links on files of which nobody has code mapped.
    fn close_unmapped(&mut self, met: &FxHashSet<(u64, u64)>) {
        let unused = self.links.shared.unused(met);
        self.links.detach_shared(&unused);
        // The next round closes what this one was the first not to meet: others pay for it, if it is a tree that has it no more.
        if self.is_tree() && self.links.shared.has_unmet() {
            self.survey.look_round_soon();
        }
        // Whoever maps them again is to be seen again.
        self.happenings.files().keep(|allocator| !unused.contains(&allocator.identity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_comes_soon_but_not_all_the_time() {
        let now = Instant::now();
        let mut survey = Survey { next_round: Some(now + ROUND[1]), ..Survey::default() };
        assert!(survey.is_due(now));
        (survey.began, survey.next) = (Some(now), Some(now + PERIOD[1]));
        assert!(!survey.is_due(now + PERIOD[0]));
        survey.repair();
        assert!(survey.next_round.is_none());
        assert!(!survey.is_due(now) && survey.is_due(now + PERIOD[0]));
        survey.waiting.push(1);
        assert!(!survey.is_due(now + PERIOD[0]));
    }
}
