//! Answers the questions of clients.

use super::command::{Command, ProcessReport};
use super::sampling::check;
use super::worker::Worker;
use crate::store::{ProcessId, Sampling};
use rustc_hash::FxHashMap;
use sampler_common::estimate::RowMoments;

impl Worker {
    pub(super) fn answer(&mut self, command: Command) {
        // An asker who has gone away needs no answer.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Processes(reply) => drop(reply.send(Ok(self.process_reports()))),
            Command::SetInterval { pids, interval_bytes, reply } => {
                drop(reply.send(self.set_interval(&pids, interval_bytes)));
            }
            Command::Profile(request, reply) => drop(reply.send(self.profile(request))),
            Command::Stop => {}
        }
    }

    fn set_interval(
        &mut self,
        pids: &[u32],
        interval_bytes: u64,
    ) -> Result<Vec<(u32, u64)>, String> {
        let asked = Sampling { interval_bytes, ..self.config.sampling };
        check(&asked)?;
        let running: FxHashMap<u32, u32> =
            self.attached.iter().map(|(slot, attached)| (attached.process.pid, *slot)).collect();
        let chosen: Vec<u32> =
            if pids.is_empty() { running.keys().copied().collect() } else { pids.to_vec() };
        if let Some(unknown) = chosen.iter().find(|pid| !running.contains_key(pid)) {
            return Err(format!("pid {unknown}: not being profiled (see: sampler ps)"));
        }
        for pid in &chosen {
            self.ask(running[pid], asked);
        }
        if pids.is_empty() {
            self.config.sampling = asked;
        }
        Ok(self.intervals().into_iter().filter(|(pid, _)| chosen.contains(pid)).collect())
    }

    pub(super) fn process_reports(&mut self) -> Vec<ProcessReport> {
        self.settle();
        self.repair();
        let mut totals: FxHashMap<ProcessId, RowMoments> = FxHashMap::default();
        for (key, moments) in self.ingest.rows.iter() {
            totals.entry(key.process).or_default().add(moments);
        }
        for (_, live) in self.ingest.live.iter() {
            totals.entry(live.process).or_default().add_live(&live.sample);
        }
        let records: Vec<_> =
            self.ingest.processes.iter().map(|(id, record)| (id, record.clone())).collect();
        records
            .into_iter()
            .map(|(id, record)| {
                let mut totals = totals.get(&id).copied().unwrap_or_default();
                totals.add(&self.lost_moments(id));
                let samples = totals.alloc_objects.samples;
                ProcessReport { id, record, exact: self.exact(&[id]), totals, samples }
            })
            .collect()
    }
}
