//! Answers the questions of clients.

use super::command::{Command, ProcessReport};
use super::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::estimate::RowMoments;
use sampler_common::sampling::Rate;

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
        let rate = Rate::from_interval(interval_bytes)
            .ok_or_else(|| format!("interval {interval_bytes}: must be 1 to 4294967296 bytes"))?;
        let running: FxHashMap<u32, u32> =
            self.attached.iter().map(|(slot, attached)| (attached.process.pid, *slot)).collect();
        let chosen: Vec<u32> =
            if pids.is_empty() { running.keys().copied().collect() } else { pids.to_vec() };
        if let Some(unknown) = chosen.iter().find(|pid| !running.contains_key(pid)) {
            return Err(format!("pid {unknown}: not being profiled (see: sampler ps)"));
        }
        for pid in &chosen {
            self.set_rate(running[pid], rate, Some(interval_bytes));
        }
        if pids.is_empty() {
            (self.rate, self.config.interval_bytes) = (rate, interval_bytes);
        }
        Ok(self.intervals().into_iter().filter(|(pid, _)| chosen.contains(pid)).collect())
    }

    pub(super) fn process_reports(&mut self) -> Vec<ProcessReport> {
        self.settle();
        self.repair();
        let mut totals: FxHashMap<ProcessId, RowMoments> = FxHashMap::default();
        for (key, moments) in self.ingest.rows.iter() {
            totals.entry(key.process).or_default().add(&moments);
        }
        for (_, live) in self.ingest.live.iter() {
            totals.entry(live.process).or_default().add_held(live.size, live.inclusion());
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
