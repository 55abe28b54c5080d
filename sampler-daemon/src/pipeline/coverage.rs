//! What is blind in the processes of the machine, each reason once.

use super::worker::Worker;
use crate::target::discovery::Discovery;
use rustc_hash::FxHashMap;
use sampler_common::note::{Processes, Reason};
use sampler_common::wire::Role;
use std::collections::BTreeMap;

/// Processes remembered at most; of further ones nothing is said.
pub(super) const MAX_LOOKED_AT: usize = 32 * 1024;
/// Processes named for one reason; more are counted.
const NAMED: usize = 16;

/// What was found out about processes that nobody need have called an allocator in.
#[derive(Default)]
pub(super) struct Coverage {
    blind: FxHashMap<u32, Vec<String>>,
}

/// A reason that holds of a process.
pub(super) struct Case<'a> {
    pub(super) pid: u32,
    pub(super) comm: &'a str,
    /// The file that it holds for; empty: all of the process.
    pub(super) place: &'a str,
    pub(super) reason: Reason,
}

impl<'a> Case<'a> {
    /// Why parts of a process are not seen. A line is `/PATH: WHY` or `WHY`.
    pub(super) fn blind(
        pid: u32,
        comm: &'a str,
        lines: &'a [String],
    ) -> impl Iterator<Item = Case<'a>> {
        lines.iter().map(move |line| {
            let parts = line.split_once(": ").filter(|(place, _)| place.starts_with('/'));
            let (place, why) = parts.unwrap_or(("", line));
            Case { pid, comm, place, reason: Reason::Blind(why.to_owned()) }
        })
    }
}

impl Coverage {
    /// Keeps what discovery says of a process.
    pub(super) fn look(&mut self, pid: u32, discovery: &Discovery) {
        let lines = &discovery.blind;
        if lines.is_empty() {
            self.blind.remove(&pid);
        } else if self.blind.len() < MAX_LOOKED_AT || self.blind.contains_key(&pid) {
            self.blind.insert(pid, lines.clone());
        }
    }

    /// Processes remembered.
    pub(super) fn len(&self) -> usize {
        self.blind.len()
    }

    /// Forgets processes that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.blind.retain(|pid, _| is_there(*pid));
    }
}

impl Worker {
    /// What is blind in running processes: those that are profiled, and those that were only looked at.
    pub(super) fn blind_processes(&self) -> Vec<Processes> {
        let mut known: FxHashMap<u32, (String, Vec<String>)> = FxHashMap::default();
        for (pid, lines) in &self.coverage.blind {
            known.insert(*pid, (crate::target::process::comm(*pid), lines.clone()));
        }
        let running = self.ingest.processes.iter().map(|(_, record)| record);
        for record in running.filter(|record| record.exited.is_none() && !record.excluded) {
            let (comm, lines) = known.entry(record.pid).or_default();
            comm.clone_from(&record.comm);
            lines.clone_from(&record.blind);
        }
        grouped(known.iter().flat_map(|(pid, (comm, lines))| Case::blind(*pid, comm, lines)))
    }

    /// Files of which a probe is slow.
    pub(super) fn slow_probes(&self) -> Vec<String> {
        let mut slow: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for allocator in self.ingest.table.values().flat_map(|profiled| &profiled.allocators) {
            let names = slow.entry(&allocator.path).or_default();
            for function in allocator.functions.iter().filter(|of| !of.placement.emulated) {
                let name = function.symbols.first().map_or("", String::as_str);
                let is_probed = function.role != Role::Free || self.config.settings.track_live;
                if is_probed && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let slow = slow.into_iter().filter(|(_, names)| !names.is_empty());
        slow.map(|(path, names)| {
            format!("{path}: probes of {} are single-stepped: slow, not blind", names.join(" "))
        })
        .collect()
    }
}

/// Processes by reason, the reason of most processes first.
pub(super) fn grouped<'a>(all: impl Iterator<Item = Case<'a>>) -> Vec<Processes> {
    let mut reasons: BTreeMap<Reason, Vec<(u32, &str, &str)>> = BTreeMap::new();
    for Case { pid, comm, place, reason } in all {
        reasons.entry(reason).or_default().push((pid, comm, place));
    }
    let processes = reasons.into_iter().map(|(reason, mut whom)| {
        whom.sort_unstable();
        let place = whom[0].2;
        let place = if whom.iter().all(|of| of.2 == place) { place } else { "" };
        // A process has several files of one kind; it counts once.
        whom.dedup_by_key(|of| of.0);
        let examples = whom.iter().take(NAMED).map(|of| (of.0, of.1.to_owned())).collect();
        Processes { reason, count: whom.len() as u64, examples, place: place.to_owned() }
    });
    let mut processes: Vec<Processes> = processes.collect();
    processes.sort_by_key(|of| std::cmp::Reverse(of.count));
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_reason() {
        let lines = [
            (9, "b", "/bin/b: static and stripped"),
            (7, "a", "/bin/a: static and stripped"),
            (5, "py", "arenas"),
            (4, "", "arenas"),
            (3, "py", "arenas"),
            (2, "py", "arenas"),
            (8, "c", "/lib/x.so: unknown"),
            (8, "c", "/lib/y.so: unknown"),
        ];
        let told = |lines: &[(u32, &str, &str)]| {
            let lines: Vec<_> =
                lines.iter().map(|(pid, comm, line)| (*pid, *comm, [(*line).to_owned()])).collect();
            let all =
                grouped(lines.iter().flat_map(|(pid, comm, line)| Case::blind(*pid, comm, line)));
            all.iter().map(Processes::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&lines),
            [
                "4 processes (py 2, py 3, 4, …): arenas",
                "2 processes (a 7, b 9): static and stripped",
                "pid 8: unknown"
            ]
        );
        let same = [(1, "x", "/l: why"), (2, "y", "/l: why")];
        assert_eq!(told(&same), ["2 processes (x 1, y 2): /l: why"]);
        assert_eq!(told(&[(6, "x", "/l: why: because")]), ["pid 6: /l: why: because"]);
    }

    #[test]
    fn what_is_looked_at_is_bounded_and_forgotten() {
        let mut coverage = Coverage::default();
        let blind = Discovery { blind: vec!["x".into()], ..Discovery::default() };
        for pid in 0..MAX_LOOKED_AT as u32 + 10 {
            coverage.look(pid, &blind);
        }
        assert_eq!(coverage.blind.len(), MAX_LOOKED_AT);
        coverage.retain(|pid| pid < 5);
        coverage.look(4, &Discovery::default());
        assert_eq!(coverage.blind.len(), 4);
    }
}
