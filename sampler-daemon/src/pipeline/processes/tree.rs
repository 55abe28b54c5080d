//! One tree of processes: the given ones and their descendants (`--follow`).
//!
//! The kernel side follows forks itself and enters each child as expected before it runs, so that
//! none of its allocations is missed.
//! This file handles earlier descendants, and new program images whose allocator has not been
//! called yet.

use super::schedule::InspectionTimer;
use crate::bpf::events::{EventKind, ProcessEvent};
use crate::inspect::mappings;
use crate::inspect::process::{Process, children};
use crate::pipeline::worker::Worker;
use anyhow::Context as _;
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Processes that are inspected soon, at most; the survey finds the others.
const MAX_TIMERS: usize = 4096;

/// The state of the tree besides its profiled processes.
#[derive(Default)]
pub(in crate::pipeline) struct Tree {
    /// Processes without a slot that have a new program image.
    timers: FxHashMap<u32, InspectionTimer>,
    /// Processes of the tree whose exit no event has reported. The kernel side forgets an exited
    /// process at once, but its earlier events are read later.
    members: FxHashSet<u32>,
}

impl Tree {
    /// Notes that a process without a slot has replaced its program image.
    pub(super) fn note_exec(&mut self, pid: u32) {
        if self.timers.len() < MAX_TIMERS || self.timers.contains_key(&pid) {
            self.timers.insert(pid, InspectionTimer::expected());
        }
    }

    /// Updates the members by an event and returns whether the event concerns the tree. `is_known`
    /// asks the kernel side about a process.
    fn takes(&mut self, event: &ProcessEvent, is_known: impl Fn(u32) -> bool) -> bool {
        let belongs = |members: &FxHashSet<u32>, pid| members.contains(&pid) || is_known(pid);
        let pid = event.pid;
        match event.what {
            EventKind::Mapped(_) | EventKind::Exec => belongs(&self.members, pid),
            EventKind::Forked(parent) => {
                let belongs = belongs(&self.members, parent);
                match belongs {
                    true => self.members.insert(pid),
                    // Another process had this pid.
                    false => self.members.remove(&pid),
                };
                belongs
            }
            EventKind::LeaderExited => self.members.remove(&pid) || is_known(pid),
            EventKind::Lost(_) => {
                self.members.clear();
                true
            }
        }
    }

    /// Processes whose inspection is due.
    fn due(&mut self) -> Vec<u32> {
        let now = Instant::now();
        let mut due = Vec::new();
        self.timers.retain(|pid, timer| {
            if !timer.is_due(now) {
                return true;
            }
            due.push(*pid);
            timer.inspected(now, Duration::MAX);
            !timer.is_left_to_survey()
        });
        due
    }
}

impl Worker {
    /// Whether an event concerns the tree. A process that ends or replaces its program may have
    /// been the last with a file.
    pub(super) fn concerns_tree(&mut self, event: &ProcessEvent) -> bool {
        let Worker { tree, kernel, survey, .. } = self;
        let concerns = tree.takes(event, |pid| kernel.targets.knows(pid));
        if concerns && matches!(event.what, EventKind::Exec | EventKind::LeaderExited) {
            survey.timer.look_round_soon();
        }
        concerns
    }

    /// Adds processes to the tree.
    pub(super) fn note_members(&mut self, pids: &FxHashSet<u32>) {
        if self.config.is_tree() {
            self.tree.members.extend(pids);
        }
    }

    /// Expects the descendants that exist already. The kernel side follows forks by now. So later
    /// children are expected with them, and earlier ones are found in the next round.
    pub(in crate::pipeline) fn follow_descendants(&mut self) -> anyhow::Result<()> {
        if !self.config.is_tree() {
            return Ok(());
        }
        loop {
            let known = self.tree_pids();
            let new: Vec<u32> =
                children(&known).into_iter().filter(|pid| !known.contains(pid)).collect();
            let mut entered = 0;
            for pid in new {
                // Kernel threads are no children. A process that cannot be opened is exiting, or
                // cannot be profiled.
                let Ok(process) = Process::open(pid) else { continue };
                if self.kernel.targets.knows(pid) {
                    continue;
                }
                if !self.exclude_if_listed(pid) {
                    match self.hazard_of(pid) {
                        Some(hazard) => self.refuse(pid, hazard),
                        None => self.kernel.targets.expect(pid)?,
                    }
                }
                if process.is_running() {
                    entered += 1;
                } else {
                    // The exit may have been handled before the entry was made.
                    self.kernel.targets.forget(pid);
                }
            }
            if entered == 0 {
                return Ok(());
            }
        }
    }

    /// Attaches to the allocators in a file, for processes that will map it.
    pub(in crate::pipeline) fn probe_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let what = || format!("--probe-file {}", path.display());
        let discovery = self.discoverer.discover_in(path).with_context(what)?;
        for blind_spot in &discovery.blind_spots {
            // The user of `sampler run` sees this warning: a program that ends soon is reported
            // nowhere else.
            tracing::warn!("{blind_spot}");
        }
        let has_none = discovery.allocators.is_empty() && discovery.samplers.is_empty();
        if has_none && !discovery.is_unfinished {
            // No error: as a rule, a program that `sampler run` starts has its allocator in a
            // library.
            tracing::info!("{} defines no allocator: nothing is probed in it", path.display());
        }
        for allocator in discovery.allocators {
            if self.config.has_own_links() {
                break;
            }
            self.links.attach_shared(&mut self.kernel, &allocator).with_context(what)?;
            self.links.shared.await_mapping(allocator.identity);
        }
        for sampler in &discovery.samplers {
            self.links.attach_shared_sampler(&mut self.kernel, sampler).with_context(what)?;
            self.links.shared.await_mapping(sampler.allocator.identity);
        }
        Ok(())
    }

    /// All processes of the tree, including excluded ones.
    pub(super) fn tree_pids(&self) -> Vec<u32> {
        let all = self.kernel.targets.all().into_iter().map(|(pid, _)| pid);
        // The daemon is excluded, wherever it stands.
        all.filter(|pid| *pid != std::process::id()).collect()
    }

    /// Inspects new program images for allocators.
    pub(in crate::pipeline) fn look_at_new_images(&mut self) {
        for pid in self.tree.due() {
            if let Some(injections) = &mut self.injections
                && !self.excluded.has(pid)
                && mappings::read_some(pid).is_err()
            {
                injections.note_missed(pid);
                continue;
            }
            self.look_at(pid);
        }
    }

    /// The limitations to report when a tree is followed.
    pub(in crate::pipeline) fn tree_limits(&self) -> Vec<String> {
        if !self.config.is_tree() {
            return Vec::new();
        }
        let state = self.kernel.state();
        let mut limits = vec![
            "processes outside the tree are not profiled, but pay for the probes in files that they share with it (--follow)"
                .to_owned(),
        ];
        let unfollowed = state.unfollowed();
        if unfollowed > 0 {
            limits
                .push(format!("{unfollowed} children: not followed, too many processes at a time"));
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_image_is_inspected_soon_and_then_by_the_survey() {
        let mut tree = Tree::default();
        tree.note_exec(1);
        let mut inspections = 0;
        while !tree.timers.is_empty() {
            inspections += tree.due().len();
            // Makes every inspection due.
            tree.timers.values_mut().for_each(|timer| timer.inspect_now());
        }
        // At 0, 1, 3, … 255 ms.
        assert_eq!(inspections, 9);
        assert!(tree.due().is_empty());
    }

    #[test]
    fn events_outside_the_tree_are_ignored() {
        let mut tree = Tree::default();
        // The root, which the kernel side knows for as long as it runs.
        let mut takes = |pid, what, known: &[u32]| {
            let event = ProcessEvent { time_ns: 0, pid, what };
            tree.takes(&event, |pid| known.contains(&pid))
        };
        assert!(takes(1, EventKind::Exec, &[1]) && !takes(7, EventKind::Exec, &[1]));
        // A child that has ended before its events are read, and a child of that child.
        assert!(takes(2, EventKind::Forked(1), &[1]));
        assert!(takes(3, EventKind::Forked(2), &[1]));
        assert!(takes(3, EventKind::Exec, &[1]));
        assert!(takes(3, EventKind::LeaderExited, &[1]));
        assert!(!takes(3, EventKind::Exec, &[1]), "another has its number");
        assert!(takes(2, EventKind::Exec, &[1]));
        // Another process has the pid.
        assert!(!takes(2, EventKind::Forked(7), &[1]) && !takes(2, EventKind::Exec, &[1]));
        assert!(takes(4, EventKind::Forked(1), &[1]));
        assert!(takes(0, EventKind::Lost(1), &[1]));
        assert!(!takes(4, EventKind::Exec, &[1]) && takes(4, EventKind::Exec, &[1, 4]));
    }

    #[test]
    fn inspections_are_bounded() {
        let mut tree = Tree::default();
        (0..MAX_TIMERS as u32 + 10).for_each(|pid| tree.note_exec(pid));
        assert_eq!(tree.timers.len(), MAX_TIMERS);
        tree.note_exec(0);
        assert_eq!(tree.due().len(), MAX_TIMERS);
    }
}
