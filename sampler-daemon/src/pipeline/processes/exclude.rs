//! Processes that are excluded when all processes, or a whole tree, are profiled. Children of an
//! excluded process in a tree still belong to the tree.
//!
//! Processes that exist at the start, or are found before they allocate, are never sampled. A newly
//! appeared process is known only by its pid and command name until it is inspected. If the process
//! is then excluded, its earlier samples are dropped and counted. If a process becomes excluded by
//! `execve`, its profile ends there and stays. An excluded process is checked again at every
//! `execve`.

use super::facts::Facts;
use crate::inspect::process;
use crate::pipeline::worker::Worker;
use crate::store::{Criterion, ProcessIdentity};
use crate::{debuginfod, parser};
use rustc_hash::FxHashMap;
use std::path::Path;

/// A reason not to profile processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The excluded processes.
    pub criterion: Criterion,
    /// The reason, for an exclusion that no user asked for.
    pub reason: &'static str,
}

impl Exclusion {
    /// samplerd and its children, which are never profiled: samplerd would sample its own work.
    pub fn daemon(guardian: u32) -> [Exclusion; 4] {
        let exclusion = |pid, reason| Exclusion { criterion: Criterion::Pid(pid), reason };
        let child = |comm: &str, reason| {
            let criterion = Criterion::Comm(comm.to_owned());
            Exclusion { criterion, reason }
        };
        [
            exclusion(std::process::id(), "samplerd itself"),
            exclusion(guardian, "samplerd's probe guardian"),
            child(parser::VERB, "samplerd's reader of names"),
            child(debuginfod::VERB, "samplerd's client of debuginfod"),
        ]
    }

    /// The injector, a child of samplerd that belongs to no tree.
    pub fn injector(program: &Path) -> Exclusion {
        let criterion = Criterion::Exe(program.display().to_string());
        Exclusion { criterion, reason: "samplerd's injector" }
    }

    /// The default exclusions.
    pub fn defaults() -> Vec<Exclusion> {
        let reason = "init: the machine would go down with it";
        vec![Exclusion { criterion: Criterion::Pid(1), reason }]
    }
}

/// The exclusions, and the processes that they exclude.
#[derive(Clone, Debug, Default)]
pub(in crate::pipeline) struct Excluded {
    pub(super) exclusions: Vec<Exclusion>,
    /// Excluded running processes, with the index of their exclusion.
    pids: FxHashMap<u32, usize>,
}

impl Excluded {
    pub(in crate::pipeline) fn new(exclusions: Vec<Exclusion>) -> Excluded {
        Excluded { exclusions, pids: FxHashMap::default() }
    }

    /// The index of the exclusion that matches a process.
    pub(in crate::pipeline) fn by(&self, who: ProcessIdentity<'_>) -> Option<usize> {
        self.exclusions.iter().position(|of| of.criterion.matches(who))
    }

    /// Whether the process `pid` was found to be excluded.
    pub(in crate::pipeline) fn has(&self, pid: u32) -> bool {
        self.pids.contains_key(&pid)
    }

    /// Forgets processes that are gone.
    pub(in crate::pipeline) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.pids.retain(|pid, _| is_there(*pid));
    }

    /// Every exclusion with the number of running processes that it excludes.
    pub(in crate::pipeline) fn report(&self) -> Vec<(Exclusion, u64)> {
        let count = |at: usize| self.pids.values().filter(|of| **of == at).count() as u64;
        self.exclusions.iter().enumerate().map(|(at, of)| (of.clone(), count(at))).collect()
    }
}

impl Worker {
    /// Excludes processes that run already. Processes of a tree are checked when they are found.
    pub(in crate::pipeline) fn exclude_running(&mut self) {
        if self.config.is_tree() {
            return;
        }
        for pid in process::pids() {
            self.exclude_if_listed(pid);
        }
    }

    /// Whether a process is excluded. An excluded process gets no slot from now on.
    pub(in crate::pipeline) fn exclude_if_listed(&mut self, pid: u32) -> bool {
        let facts = Facts::of(pid);
        let Some(by) = self.excluded.by(facts.who(pid)) else {
            self.excluded.pids.remove(&pid);
            return false;
        };
        match self.ingest.table.attached_slot(pid) {
            Some(slot) => self.detach_excluded(slot, by),
            None => self.block_pid(pid, by),
        }
        true
    }

    /// Whether a process is excluded in its present state. This function changes nothing.
    pub(super) fn is_excluded(&self, pid: u32) -> bool {
        self.excluded.by(Facts::of(pid).who(pid)).is_some()
    }

    /// Whether the process that has just taken a slot is excluded. An excluded process loses the
    /// slot again.
    pub(super) fn drops_if_excluded(&mut self, slot: u32) -> bool {
        let Some(profiled) = self.ingest.table.get(slot) else { return false };
        let (id, has_been) = (profiled.id, profiled.has_exec());
        let Some(by) = self.excluded.by(self.ingest.processes.get(id).who()) else { return false };
        if has_been {
            self.detach_excluded(slot, by);
            return true;
        }
        self.ingest.drop_seen(id);
        self.detach_excluded(slot, by);
        true
    }

    /// Whether the process in `slot` runs an excluded program now. If so, the process is treated as
    /// if it had ended.
    pub(super) fn has_become_excluded(&mut self, slot: u32) -> bool {
        let Some(profiled) = self.ingest.table.get(slot) else { return false };
        let facts = Facts::of(profiled.pid);
        let Some(by) = self.excluded.by(facts.who(profiled.pid)) else { return false };
        self.detach_excluded(slot, by);
        true
    }

    /// Handles the new image of a process without a slot: a process that was excluded may now be
    /// profiled.
    pub(in crate::pipeline) fn expected_exec(&mut self, pid: u32) {
        let is_outside = |slot| !self.kernel.targets.has(pid, slot);
        let has_been = self
            .ingest
            .table
            .all_attached()
            .find(|(slot, of, _)| of.pid == pid && is_outside(*slot));
        match has_been.map(|(slot, ..)| slot) {
            // In modes where processes take no slots by themselves, the process stays excluded.
            Some(slot) if !self.config.is_open() => self.exclude(slot),
            _ => self.tree.note_exec(pid),
        }
    }

    fn detach_excluded(&mut self, slot: u32, by: usize) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let pid = profiled.pid;
        self.detach_exited(&[slot]);
        // If the process has taken another slot meanwhile, it appears in that slot and is excluded
        // again.
        self.block_pid(pid, by);
    }

    fn block_pid(&mut self, pid: u32, by: usize) {
        self.excluded.pids.insert(pid, by);
        if let Err(error) = self.kernel.targets.exclude(pid) {
            tracing::warn!(pid, "{error:#}");
        }
        // The process may have ended before it was listed. Then nothing else removes it, and the
        // next process with this pid would be excluded.
        if !Path::new(&format!("/proc/{pid}")).exists() {
            self.excluded.pids.remove(&pid);
            self.kernel.targets.forget(pid);
        }
        tracing::debug!(pid, "excluded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_exclusion_applies() {
        let requested = |text: &str| {
            let criterion = Criterion::parse(text).unwrap();
            Exclusion { criterion, reason: "" }
        };
        let mut exclusions = Exclusion::daemon(2).to_vec();
        exclusions.extend(Exclusion::defaults());
        exclusions.extend([requested("comm:post*"), requested("cgroup:/system.slice")]);
        let mut excluded = Excluded::new(exclusions);
        let who =
            |pid, comm, cgroup| ProcessIdentity { pid, comm, cgroup, ..ProcessIdentity::default() };
        assert_eq!(excluded.by(who(std::process::id(), "x", "/")), Some(0));
        assert_eq!(excluded.by(who(2, "x", "/")), Some(1));
        assert_eq!(excluded.by(who(7, parser::VERB, "/")), Some(2));
        assert_eq!(excluded.by(who(7, debuginfod::VERB, "/")), Some(3));
        assert_eq!(excluded.by(who(1, "postgres", "/")), Some(4));
        assert_eq!(excluded.by(who(7, "postgres", "/system.slice/x")), Some(5));
        assert_eq!(excluded.by(who(7, "redis", "/system.slice/x")), Some(6));
        assert_eq!(excluded.by(who(7, "redis", "/user.slice")), None);
        excluded.pids.extend([(7, 5), (8, 5), (9, 6)]);
        excluded.retain(|pid| pid != 8);
        let counts: Vec<u64> = excluded.report().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 1]);
    }
}
