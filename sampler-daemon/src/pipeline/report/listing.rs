//! The list of processes, or of groups of processes, with their numbers.

use super::gather::Gathered;
use super::scope::Scope;
use super::usable::Usable;
use crate::inspect::process::memory::{self, Memory};
use crate::pipeline::command::ProcessReport;
use crate::pipeline::cost::UnreadCost;
use crate::pipeline::worker::Worker;
use crate::store::{ProcessId, ProcessRecord, SamplingRecord, Selector};
use rustc_hash::FxHashMap;
use sampler_common::cost::Report;
use sampler_common::estimate::{Confidence, Reference, Row};
use sampler_common::profile::{Exact, Kind};
use sampler_common::source::SourceGroup;
use std::collections::BTreeMap;
use std::time::SystemTime;

type UsableOf = FxHashMap<ProcessId, Usable>;

/// Pids that are listed of a group.
const MAX_PIDS_PER_GROUP: usize = 8;

/// The key of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Process id: processes that had the same one in succession.
    Pid,
    /// Command name.
    Comm,
    /// Path of the executable.
    Exe,
    /// Path of the control group.
    Cgroup,
    /// Id or name of the container.
    Container,
}

impl GroupBy {
    /// All keys, by name.
    pub const ALL: [(&'static str, GroupBy); 5] = [
        ("pid", GroupBy::Pid),
        ("comm", GroupBy::Comm),
        ("exe", GroupBy::Exe),
        ("cgroup", GroupBy::Cgroup),
        ("container", GroupBy::Container),
    ];

    fn key(self, record: &ProcessRecord) -> String {
        match self {
            GroupBy::Pid => record.pid.to_string(),
            GroupBy::Comm => record.comm.clone(),
            GroupBy::Exe => record.exe.clone(),
            GroupBy::Cgroup => record.origin.cgroup.clone(),
            GroupBy::Container => record.origin.container.clone(),
        }
    }
}

/// A request for a list of processes.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Which processes.
    pub selector: Selector,
    /// Groups instead of processes.
    pub group_by: Option<GroupBy>,
    /// Exited processes as groups by command name.
    pub fold_exited: bool,
}

/// A list of processes or groups.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Processes.
    pub processes: Vec<ProcessReport>,
    /// Groups, by falling bytes allocated.
    pub groups: Vec<GroupReport>,
    /// When exact totals were read, nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// The numbers of one or several processes.
#[derive(Clone, Debug)]
pub struct ProcessSums {
    /// Exact totals; `None` if those of one process are unknown.
    pub exact: Option<Exact>,
    /// All rows together.
    pub totals: Row,
    /// The reference of estimates.
    pub reference: Reference,
    /// Number of samples in the rows.
    pub samples: u64,
    /// Pid and start of the processes whose memory is to be read.
    pub running: Vec<(u32, u64)>,
    /// Memory of the running processes; `None` if none runs.
    pub memory: Option<Memory>,
    /// How much larger than requested the live blocks are.
    pub usable: Usable,
    /// Cost of profiling the processes.
    pub cost: Report,
    /// As `cost`, before CPU times are read.
    pub(super) unread: UnreadCost,
}

/// Several processes together.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// The common key.
    pub key: String,
    /// Number of processes.
    pub processes: u64,
    /// Number of running processes.
    pub running: u64,
    /// Some pids, the newest first.
    pub pids: Vec<u32>,
    /// When the newest process was attached.
    pub newest: SystemTime,
    /// Where the samples come from.
    pub sources: Vec<SourceGroup>,
    /// The numbers of the group.
    pub sums: ProcessSums,
}

impl Worker {
    pub(super) fn listing(&self, request: &ListRequest) -> Result<Listing, String> {
        let chosen = self.ingest.chosen(&request.selector)?;
        let gathered = self.gather_now(chosen, Kind::Alloc, &Scope::ALL, None);
        let usable = self.usable(&gathered.processes);
        let mapped = self.mapped_totals();
        let mut listing = Listing { time_ns: gathered.clocks.now_ns, ..Listing::default() };
        let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (index, id) in (0..).zip(&gathered.processes) {
            let record = self.ingest.processes.get(*id);
            let folded = request.fold_exited && record.exited.is_some();
            let by = request.group_by.or(folded.then_some(GroupBy::Comm));
            match by {
                Some(by) => groups.entry(by.key(record)).or_default().push(index),
                None => {
                    let mut report = self.process_report(&gathered, &usable, index, *id);
                    report.mappings =
                        mapped.as_ref().map(|of| of.get(id).copied().unwrap_or_default());
                    listing.processes.push(report);
                }
            }
        }
        let groups =
            groups.into_iter().map(|(key, of)| self.group_report(&gathered, &usable, key, &of));
        listing.groups = groups.collect();
        listing.groups.sort_by_key(|group| std::cmp::Reverse(group.sums.bytes()));
        Ok(listing)
    }

    fn process_report(
        &self,
        gathered: &Gathered,
        usable: &UsableOf,
        index: u32,
        id: ProcessId,
    ) -> ProcessReport {
        ProcessReport {
            id,
            record: self.ingest.processes.get(id).clone(),
            sums: self.sums(gathered, usable, &[index]),
            free_calls: self.free_calls(id),
            bounds: self.bounds(id),
            mappings: None,
        }
    }

    fn group_report(
        &self,
        gathered: &Gathered,
        usable: &UsableOf,
        key: String,
        of: &[u32],
    ) -> GroupReport {
        let records =
            of.iter().map(|index| self.ingest.processes.get(gathered.processes[*index as usize]));
        let mut newest: Vec<_> = records.clone().map(|of| (of.attached, of.pid)).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        let sources = records.clone().map(|of| (of.sources(), of.exited_count.max(1)));
        GroupReport {
            key,
            processes: records.clone().map(|record| record.exited_count.max(1)).sum(),
            running: records.filter(|record| record.exited.is_none()).count() as u64,
            pids: newest
                .iter()
                .map(|(_, pid)| *pid)
                .filter(|pid| *pid > 0)
                .take(MAX_PIDS_PER_GROUP)
                .collect(),
            newest: newest.first().map_or(SystemTime::UNIX_EPOCH, |(attached, _)| *attached),
            sources: SourceGroup::of(sources),
            sums: self.sums(gathered, usable, of),
        }
    }

    /// Sums of some processes. Moments are summed first; intervals are computed from the sums.
    fn sums(&self, gathered: &Gathered, usable_of: &UsableOf, of: &[u32]) -> ProcessSums {
        let ids: Vec<ProcessId> = of.iter().map(|of| gathered.processes[*of as usize]).collect();
        let mut usable = Usable::default();
        let mut running = Vec::new();
        for id in &ids {
            running.extend(self.ingest.running(*id));
            usable_of.get(id).into_iter().for_each(|one| usable.add(one));
        }
        let reference = Reference {
            interval_bytes: self.ingest.interval_of(&ids, SamplingRecord::largest_interval),
            ..gathered.reference.of_processes(of)
        };
        let exact = of.iter().map(|index| gathered.exact_of(*index)).sum();
        let totals = reference.row();
        let samples = totals.total().alloc_objects.samples;
        let unread = self.costs(&ids, Confidence::DEFAULT);
        let cost = Report::default();
        ProcessSums {
            exact,
            totals,
            reference,
            samples,
            running,
            memory: None,
            usable,
            cost,
            unread,
        }
    }
}

impl ProcessSums {
    /// Bytes allocated, estimated if they are not known exactly.
    fn bytes(&self) -> u64 {
        let estimated = || self.totals.total().alloc_space.sum as u64;
        self.exact.map_or_else(estimated, |exact| exact.alloc_space)
    }

    fn read_memory(&mut self) {
        let each = self.running.iter().filter_map(|(pid, start)| memory::read(*pid, *start));
        let each: Vec<Memory> = each.collect();
        self.memory = (!each.is_empty()).then(|| each.into_iter().sum());
        self.cost = std::mem::take(&mut self.unread).read();
    }
}

impl Listing {
    /// Reads memory and CPU time of running processes. Reading `/proc` takes a while, so it is not
    /// done on the worker's thread.
    pub(in crate::pipeline) fn read_memory(&mut self) {
        self.processes.iter_mut().for_each(|process| process.sums.read_memory());
        self.groups.iter_mut().for_each(|group| group.sums.read_memory());
    }
}
