//! One tree of processes: the given ones and whatever they fork (`--follow`).
//!
//! The kernel side follows forks itself and enters each child as expected before it runs, so that no allocation of it is
//! missed; this is about descendants that were there before, and about new program images whose allocator nobody has called yet.

use super::config::AttachMode;
use super::schedule::LookTimer;
use super::worker::Worker;
use crate::bpf::events::{EventKind, ProcessEvent};
use crate::inspect::mappings;
use crate::inspect::process::{Process, children};
use anyhow::Context as _;
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Processes that are looked at soon, at most; the survey finds what is missed.
const MAX_LOOKS: usize = 4096;

/// What is known of the tree besides the processes in it.
#[derive(Default)]
pub(super) struct Tree {
    /// Processes without a slot that have a new program image.
    looks: FxHashMap<u32, LookTimer>,
    /// Processes of the tree whose exit no event has reported: the kernel side forgets one at once, and what it did before is reported later.
    members: FxHashSet<u32>,
}

impl Tree {
    /// A process that has no slot yet has replaced its program image.
    pub(super) fn note_exec(&mut self, pid: u32) {
        if self.looks.len() < MAX_LOOKS || self.looks.contains_key(&pid) {
            self.looks.insert(pid, LookTimer::expected());
        }
    }

    /// Takes in what an event says of who belongs to the tree, and returns whether it concerns it; `is_known` asks the kernel side of a process.
    fn takes(&mut self, event: &ProcessEvent, is_known: impl Fn(u32) -> bool) -> bool {
        let belongs = |members: &FxHashSet<u32>, pid| members.contains(&pid) || is_known(pid);
        let pid = event.pid;
        match event.what {
            EventKind::Mapped(_) | EventKind::Exec => belongs(&self.members, pid),
            EventKind::Forked(parent) => {
                let belongs = belongs(&self.members, parent);
                match belongs {
                    true => self.members.insert(pid),
                    // Another had its number.
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

    /// Processes that it is time to look at.
    fn due(&mut self) -> Vec<u32> {
        let now = Instant::now();
        let mut due = Vec::new();
        self.looks.retain(|pid, timer| {
            if !timer.is_due(now) {
                return true;
            }
            due.push(*pid);
            timer.looked(now, Duration::MAX);
            !timer.is_left_to_survey()
        });
        due
    }
}

impl Worker {
    /// Whether it is a tree that is profiled.
    pub(super) fn is_tree(&self) -> bool {
        self.config.attach_mode == AttachMode::Descendants
    }

    /// Whether an event concerns the tree. A process that ends or replaces its program may have been the last with a file.
    pub(super) fn concerns_tree(&mut self, event: &ProcessEvent) -> bool {
        let Worker { tree, kernel, survey, .. } = self;
        let concerns = tree.takes(event, |pid| kernel.targets.knows(pid));
        if concerns && matches!(event.what, EventKind::Exec | EventKind::LeaderExited) {
            survey.timer.look_round_soon();
        }
        concerns
    }

    /// These processes belong to the tree.
    pub(super) fn note_members(&mut self, pids: &FxHashSet<u32>) {
        if self.is_tree() {
            self.tree.members.extend(pids);
        }
    }

    /// Expects the descendants that are there already. The kernel side is following forks by now: what they fork from here on is
    /// expected with them, and what they forked before is found in the next round.
    pub(super) fn follow_descendants(&mut self) -> anyhow::Result<()> {
        if !self.is_tree() {
            return Ok(());
        }
        loop {
            let known = self.tree_pids();
            let new: Vec<u32> =
                children(&known).into_iter().filter(|pid| !known.contains(pid)).collect();
            let mut entered = 0;
            for pid in new {
                // Kernel threads are no children; what cannot be opened is exiting, or cannot be profiled.
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
                    // Its exit may have come before the entry.
                    self.kernel.targets.forget(pid);
                }
            }
            if entered == 0 {
                return Ok(());
            }
        }
    }

    /// Attaches to the allocators in a file, for those who will map it.
    pub(super) fn probe_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let what = || format!("--probe-file {}", path.display());
        let discovery = self.discoverer.discover_in(path).with_context(what)?;
        for blind in &discovery.blind {
            // Who starts a program by this shows it: of one that ends soon nothing else may tell.
            tracing::warn!("{blind}");
        }
        if discovery.allocators.is_empty() && discovery.samplers.is_empty() {
            // No error: what `sampler run` starts has its allocator in a library as a rule.
            tracing::info!("{} defines no allocator: nothing is probed in it", path.display());
        }
        for allocator in discovery.allocators {
            if self.has_own_links() {
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

    /// All processes of the tree, those that are excluded among them.
    pub(super) fn tree_pids(&self) -> Vec<u32> {
        let all = self.kernel.targets.all().into_iter().map(|(pid, _)| pid);
        // Excluded wherever it stands.
        all.filter(|pid| *pid != std::process::id()).collect()
    }

    /// Looks for the allocators of new program images.
    pub(super) fn look_at_new_images(&mut self) {
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

    /// What is to be said of following a tree.
    pub(super) fn tree_limits(&self) -> Vec<String> {
        if !self.is_tree() {
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
        let mut looks = 0;
        while !tree.looks.is_empty() {
            looks += tree.due().len();
            // As if the time had come.
            tree.looks.values_mut().for_each(|timer| timer.look_now());
        }
        // At 0, 1, 3, … 255 ms.
        assert_eq!(looks, 9);
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
        // A child that has ended when its events are read, and a child of it.
        assert!(takes(2, EventKind::Forked(1), &[1]));
        assert!(takes(3, EventKind::Forked(2), &[1]));
        assert!(takes(3, EventKind::Exec, &[1]));
        assert!(takes(3, EventKind::LeaderExited, &[1]));
        assert!(!takes(3, EventKind::Exec, &[1]), "another has its number");
        assert!(takes(2, EventKind::Exec, &[1]));
        // Somebody else has the other's number.
        assert!(!takes(2, EventKind::Forked(7), &[1]) && !takes(2, EventKind::Exec, &[1]));
        assert!(takes(4, EventKind::Forked(1), &[1]));
        assert!(takes(0, EventKind::Lost(1), &[1]));
        assert!(!takes(4, EventKind::Exec, &[1]) && takes(4, EventKind::Exec, &[1, 4]));
    }

    #[test]
    fn inspections_are_bounded() {
        let mut tree = Tree::default();
        (0..MAX_LOOKS as u32 + 10).for_each(|pid| tree.note_exec(pid));
        assert_eq!(tree.looks.len(), MAX_LOOKS);
        tree.note_exec(0);
        assert_eq!(tree.due().len(), MAX_LOOKS);
    }
}
