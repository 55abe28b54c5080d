//! Blind spots: what samplerd cannot see in the processes of the machine, with each reason once.

use crate::inspect::discovery::Discovery;
use crate::pipeline::worker::Worker;
use rustc_hash::FxHashMap;
use sampler_common::note::{BlindSpot, Processes, Reason};
use sampler_common::wire::Role;
use std::collections::BTreeMap;

/// Maximum number of processes with remembered blind spots. Further processes are not reported.
pub(in crate::pipeline) const MAX_BLIND_PROCESSES: usize = 32 * 1024;
/// Maximum number of processes that are named for one reason. Further processes are only counted.
const MAX_NAMED_PROCESSES: usize = 16;

/// Blind spots of processes that may never have called an allocator.
#[derive(Default)]
pub(in crate::pipeline) struct Coverage {
    blind_spots: FxHashMap<u32, Vec<BlindSpot>>,
}

/// A reason that applies to a process.
pub(in crate::pipeline) struct Case<'a> {
    pub(in crate::pipeline) pid: u32,
    pub(in crate::pipeline) comm: &'a str,
    /// The file that the reason applies to; empty: the whole process.
    pub(in crate::pipeline) place: &'a str,
    pub(in crate::pipeline) reason: Reason,
}

impl<'a> Case<'a> {
    /// The case of a part of a process that is not seen.
    pub(in crate::pipeline) fn blind_spot(
        pid: u32,
        comm: &'a str,
        BlindSpot { place, why }: &'a BlindSpot,
    ) -> Case<'a> {
        Case { pid, comm, place, reason: Reason::BlindSpot(why.clone()) }
    }
}

impl Coverage {
    /// Keeps the blind spots that discovery has found in a process.
    pub(super) fn note_discovery(&mut self, pid: u32, discovery: &Discovery) {
        self.blind_spots.remove(&pid);
        discovery.blind_spots.iter().for_each(|of| self.add(pid, of.clone()));
    }

    /// Keeps one more blind spot of a process, until the next inspection of the process.
    pub(in crate::pipeline) fn add(&mut self, pid: u32, blind_spot: BlindSpot) {
        if self.blind_spots.len() < MAX_BLIND_PROCESSES || self.blind_spots.contains_key(&pid) {
            let known = self.blind_spots.entry(pid).or_default();
            if !known.contains(&blind_spot) {
                known.push(blind_spot);
            }
        }
    }

    /// Number of processes remembered.
    pub(in crate::pipeline) fn len(&self) -> usize {
        self.blind_spots.len()
    }

    /// Forgets processes that are gone.
    pub(in crate::pipeline) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.blind_spots.retain(|pid, _| is_there(*pid));
    }
}

impl Worker {
    /// The blind spots of running processes: profiled ones, and ones that were only inspected.
    pub(in crate::pipeline) fn blind_processes(&self) -> Vec<Processes> {
        let mut known: FxHashMap<u32, (String, Vec<BlindSpot>)> = FxHashMap::default();
        for (pid, blind_spots) in &self.coverage.blind_spots {
            known.insert(*pid, (crate::inspect::process::comm(*pid), blind_spots.clone()));
        }
        let running = self.ingest.processes.iter().map(|(_, record)| record);
        for record in running.filter(|record| record.exited.is_none() && !record.excluded) {
            let (comm, blind_spots) = known.entry(record.pid).or_default();
            comm.clone_from(&record.comm);
            blind_spots.clone_from(&record.blind_spots);
        }
        grouped(known.iter().flat_map(|(pid, (comm, blind_spots))| {
            blind_spots.iter().map(|of| Case::blind_spot(*pid, comm, of))
        }))
    }

    /// Files with a slow probe.
    pub(in crate::pipeline) fn slow_probes(&self) -> Vec<String> {
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
pub(in crate::pipeline) fn grouped<'a>(all: impl Iterator<Item = Case<'a>>) -> Vec<Processes> {
    let mut reasons: BTreeMap<Reason, Vec<(u32, &str, &str)>> = BTreeMap::new();
    for Case { pid, comm, place, reason } in all {
        reasons.entry(reason).or_default().push((pid, comm, place));
    }
    let processes = reasons.into_iter().map(|(reason, mut whom)| {
        whom.sort_unstable();
        let place = whom[0].2;
        let place = if whom.iter().all(|of| of.2 == place) { place } else { "" };
        // A process may have several files of one kind; it counts once.
        whom.dedup_by_key(|of| of.0);
        let examples =
            whom.iter().take(MAX_NAMED_PROCESSES).map(|of| (of.0, of.1.to_owned())).collect();
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
    fn processes_are_grouped_by_reason() {
        let lines = [
            (9, "b", BlindSpot::at("/bin/b", "static and stripped")),
            (7, "a", BlindSpot::at("/bin/a", "static and stripped")),
            (5, "py", "arenas".into()),
            (4, "", "arenas".into()),
            (3, "py", "arenas".into()),
            (2, "py", "arenas".into()),
            (8, "c", BlindSpot::at("/lib/x.so", "unknown")),
            (8, "c", BlindSpot::at("/lib/y.so", "unknown")),
        ];
        let lines_of = |lines: &[(u32, &str, BlindSpot)]| {
            let cases = lines
                .iter()
                .map(|(pid, comm, blind_spot)| Case::blind_spot(*pid, comm, blind_spot));
            grouped(cases).iter().map(Processes::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            lines_of(&lines),
            [
                "4 processes (py 2, py 3, 4, …): arenas",
                "2 processes (a 7, b 9): static and stripped",
                "pid 8: unknown"
            ]
        );
        let why = || BlindSpot::at("/l", "why");
        let same = [(1, "x", why()), (2, "y", why())];
        assert_eq!(lines_of(&same), ["2 processes (x 1, y 2): /l: why"]);
    }

    #[test]
    fn inspected_processes_are_bounded_and_forgotten() {
        let mut coverage = Coverage::default();
        let discovery = Discovery { blind_spots: vec!["x".into()], ..Discovery::default() };
        for pid in 0..MAX_BLIND_PROCESSES as u32 + 10 {
            coverage.note_discovery(pid, &discovery);
        }
        assert_eq!(coverage.blind_spots.len(), MAX_BLIND_PROCESSES);
        coverage.retain(|pid| pid < 5);
        coverage.note_discovery(4, &Discovery::default());
        assert_eq!(coverage.blind_spots.len(), 4);
    }
}
