//! What is blind in the processes of the machine, each reason once.

use super::worker::Worker;
use crate::target::discovery::Discovery;
use rustc_hash::FxHashMap;
use sampler_common::wire::Role;
use std::collections::BTreeMap;

/// Processes remembered at most; of further ones nothing is said.
pub(super) const MAX_LOOKED_AT: usize = 32 * 1024;
/// Processes named for one reason; more are counted.
const NAMED: usize = 16;
/// Of these so many in a line of text.
const IN_TEXT: usize = 3;

/// What was found out about processes that nobody need have called an allocator in.
#[derive(Default)]
pub(super) struct Coverage {
    blind: FxHashMap<u32, Vec<String>>,
}

/// Why something is not seen, and in whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// Why.
    pub why: String,
    /// In how many processes.
    pub processes: u64,
    /// Pid and command name of some.
    pub examples: Vec<(u32, String)>,
    /// The file, where it is one and the same in all.
    pub place: String,
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
    pub(super) fn blind_processes(&self) -> Vec<Blind> {
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
        let lines = known.iter().flat_map(|(pid, (comm, lines))| {
            lines.iter().map(move |line| (*pid, comm.as_str(), line.as_str()))
        });
        grouped(lines)
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

/// Lines of processes (pid, command name, line) by reason, that of most processes first. A line is `/PATH: WHY` or `WHY`.
pub(super) fn grouped<'a>(lines: impl Iterator<Item = (u32, &'a str, &'a str)>) -> Vec<Blind> {
    let mut reasons: BTreeMap<&str, Vec<(u32, &str, &str)>> = BTreeMap::new();
    for (pid, comm, line) in lines {
        let parts = line.split_once(": ").filter(|(place, _)| place.starts_with('/'));
        let (place, why) = parts.unwrap_or(("", line));
        reasons.entry(why).or_default().push((pid, comm, place));
    }
    let mut all: Vec<Blind> = reasons
        .into_iter()
        .map(|(why, mut whom)| {
            whom.sort_unstable();
            let place = whom[0].2;
            let place = if whom.iter().all(|of| of.2 == place) { place } else { "" };
            // A process has several files of one kind; it counts once.
            whom.dedup_by_key(|of| of.0);
            let examples = whom.iter().take(NAMED).map(|of| (of.0, of.1.to_owned()));
            Blind {
                why: why.to_owned(),
                processes: whom.len() as u64,
                examples: examples.collect(),
                place: place.to_owned(),
            }
        })
        .collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.processes));
    all
}

impl Blind {
    /// One line: whom it is about, where, and why.
    pub(super) fn line(&self) -> String {
        let Blind { why, processes, examples, place } = self;
        let named = |(pid, comm): &(u32, String)| match comm.as_str() {
            "" => pid.to_string(),
            comm => format!("{comm} {pid}"),
        };
        let named: Vec<String> = examples.iter().take(IN_TEXT).map(named).collect();
        let more = if *processes > named.len() as u64 { ", …" } else { "" };
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        match (processes, examples.first()) {
            (1, Some((pid, _))) => format!("pid {pid}: {place}{why}"),
            _ => format!("{processes} processes ({}{more}): {place}{why}", named.join(", ")),
        }
    }
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
        let all = grouped(lines.into_iter());
        let told: Vec<String> = all.iter().map(Blind::line).collect();
        assert_eq!(
            told,
            [
                "4 processes (py 2, py 3, 4, …): arenas",
                "2 processes (a 7, b 9): static and stripped",
                "pid 8: unknown"
            ]
        );
        let same = grouped([(1, "x", "/l: why"), (2, "y", "/l: why")].into_iter());
        assert_eq!(same[0].line(), "2 processes (x 1, y 2): /l: why");
        assert_eq!(
            grouped([(6, "x", "/l: why: because")].into_iter())[0].line(),
            "pid 6: /l: why: because"
        );
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
