//! Surveys all processes of the machine: for allocators that no process has called yet, and for
//! what events have missed.
//!
//! If the kernel reports new mappings, the survey is a rare repair. Otherwise it is how allocators
//! are found.

use super::attach::not_probed;
use super::schedule::SurveyTimer;
use crate::inspect::discovery::Discovery;
use crate::inspect::mappings;
use crate::inspect::process::pids;
use crate::pipeline::worker::Worker;
use rustc_hash::FxHashSet;
use std::time::{Duration, Instant};

/// Longest time that is spent on the survey at once: samples wait meanwhile.
const MAX_TURN: Duration = Duration::from_millis(5);

/// The processes that have been inspected.
#[derive(Default)]
pub(in crate::pipeline) struct Survey {
    pub(in crate::pipeline) timer: SurveyTimer,
    known: FxHashSet<u32>,
    /// Processes that are still to be inspected.
    waiting: Vec<u32>,
    /// Processes with large files that were being searched when they were inspected.
    unfinished: FxHashSet<u32>,
    /// Number of large files that had been searched by then.
    searched: u64,
    /// Allocators found in the round so far, by device and inode; none between rounds.
    round: Option<FxHashSet<(u64, u64)>>,
}

impl Survey {
    /// Notes how many large files have been searched. Returns whether there are more than at the
    /// last call. Then the processes with such files are inspected again.
    pub(super) fn has_new_results(&mut self, searched: u64) -> bool {
        if searched == std::mem::replace(&mut self.searched, searched) {
            return false;
        }
        self.waiting.extend(self.unfinished.drain());
        true
    }

    /// Whether a survey is due. It does not begin before the last one has ended.
    fn is_due(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.timer.is_due(now)
    }
}

impl Worker {
    /// Inspects processes that are due, for some milliseconds at most.
    pub(in crate::pipeline) fn survey(&mut self) {
        if self.config.is_open() {
            self.survey_for(MAX_TURN);
        }
    }

    /// Inspects processes that are due, for at most `most`.
    pub(in crate::pipeline) fn survey_for(&mut self, most: Duration) {
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
            && let Some(mapped) = self.survey.round.take()
        {
            self.close_unmapped(&mapped);
        }
    }

    fn begin_survey(&mut self, now: Instant) {
        let is_round = self.survey.timer.begin(now, self.process_events.is_open());
        let gone = self.ingest.gone(&self.ingest.slots());
        self.detach_gone(&gone);
        self.look_at_refused();
        let own = std::process::id();
        let pids = if self.config.is_tree() { self.tree_pids() } else { pids() };
        let pids: FxHashSet<u32> = pids.into_iter().filter(|pid| *pid != own).collect();
        self.note_members(&pids);
        self.coverage.retain(|pid| pids.contains(&pid));
        self.excluded.retain(|pid| pids.contains(&pid));
        if let Some(injections) = &mut self.injections {
            injections.retain(|pid| pids.contains(&pid));
        }
        if is_round {
            self.survey.round = Some(FxHashSet::default());
            self.survey.waiting = pids.iter().copied().collect();
        } else {
            let new = pids.difference(&self.survey.known);
            self.survey.waiting.extend(new);
        }
        self.survey.unfinished.retain(|pid| pids.contains(pid));
        self.survey.known = pids;
    }

    /// Attaches to the allocators of a process.
    pub(in crate::pipeline) fn look_at(&mut self, pid: u32) {
        let exclude_if_listed = self.exclude_if_listed(pid);
        // A child of an excluded process of a tree is profiled, and maps the same files.
        if exclude_if_listed && !self.config.is_tree() {
            return;
        }
        // A kernel thread has no allocator, and a process that cannot be read is exiting.
        let discovery = self.discover(pid);
        if !exclude_if_listed && let Some(hazard) = self.hazard_of(pid) {
            self.refuse(pid, hazard);
            return;
        }
        let Ok(discovery) = discovery else { return };
        if discovery.is_unfinished {
            self.survey.unfinished.insert(pid);
            // A link of a file that is being searched must not count as left.
            self.survey.round = None;
        }
        self.end_refusal(pid);
        if self.process_events.is_open() {
            self.ingest.history.add_running(pid, || mappings::executable(pid));
        }
        if !exclude_if_listed {
            self.coverage.note_discovery(pid, &discovery);
        }
        // Every file with a link is recorded: a link whose file is not found is closed in the end.
        if let Some(mapped) = &mut self.survey.round {
            mapped.extend(discovery.files().map(|of| of.identity));
        }
        if discovery.is_sampled && !exclude_if_listed {
            self.admit_self_sampled(pid);
        }
        self.attach_found(pid, &discovery);
    }

    /// Attaches, for all processes, to what was found in one process, or in a file that it has
    /// mapped. What could not be attached to is a blind spot of the process until its next
    /// inspection.
    pub(super) fn attach_found(&mut self, pid: u32, found: &Discovery) {
        if self.config.has_own_links() {
            return;
        }
        let Worker { links, kernel, coverage, .. } = self;
        let samplers = found
            .samplers
            .iter()
            .map(|sampler| (&sampler.allocator.path, links.attach_shared_sampler(kernel, sampler)));
        let mut attached: Vec<_> = samplers.collect();
        attached
            .extend(found.allocators.iter().map(|of| (&of.path, links.attach_shared(kernel, of))));
        for (path, attached) in attached {
            if let Err(error) = attached {
                tracing::warn!(pid, path, "{error:#}");
                coverage.add(pid, not_probed(&error));
            }
        }
        self.exclude_for_all(&found.patched);
    }

    /// Closes links on files that no process has mapped as code.
    fn close_unmapped(&mut self, mapped: &FxHashSet<(u64, u64)>) {
        let unused = self.links.shared.unused(mapped);
        self.links.detach_shared(&unused);
        // The next round closes links that are unmapped in this round for the first time. Outside
        // the tree, other processes pay for such a link.
        if self.config.is_tree() && self.links.shared.has_unmapped() {
            self.survey.timer.look_round_soon();
        }
        // Files that are mapped again have to be reported again.
        self.process_events.files().keep(|allocator| !unused.contains(&allocator.identity));
    }
}
