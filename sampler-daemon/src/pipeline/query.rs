//! Answers the questions of clients.

use super::command::{Command, SamplingChange, SamplingReport};
use super::worker::Worker;
use rustc_hash::FxHashMap;

impl Worker {
    pub(super) fn answer(&mut self, command: Command) {
        // Who has come before the question is among those that it is about.
        self.settle();
        // An asker who has gone away needs no answer.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Processes(request, reply) => drop(reply.send(self.listing(&request))),
            Command::SetSampling { pids, change, reply } => {
                drop(reply.send(self.set_sampling(&pids, &change)));
            }
            Command::Profile(request, reply) => drop(reply.send(self.profile(request))),
            Command::Lifetimes(request, reply) => drop(reply.send(self.lifetimes(request))),
            Command::Stop => {}
        }
    }

    /// All or nothing: a change that one of the processes cannot have is refused for all.
    fn set_sampling(
        &mut self,
        pids: &[u32],
        change: &SamplingChange,
    ) -> Result<Vec<SamplingReport>, String> {
        let running: FxHashMap<u32, u32> =
            self.attached.iter().map(|(slot, attached)| (attached.pid, *slot)).collect();
        let chosen: Vec<u32> =
            if pids.is_empty() { running.keys().copied().collect() } else { pids.to_vec() };
        if let Some(unknown) = chosen.iter().find(|pid| !running.contains_key(pid)) {
            return Err(format!("pid {unknown}: not being profiled (see: sampler ps)"));
        }
        let mut changes = Vec::new();
        for pid in &chosen {
            let Some(record) = self.sampling_of(running[pid]) else { continue };
            let asked = change.apply(&record.asked);
            asked.check()?;
            changes.push((running[pid], asked));
        }
        if pids.is_empty() {
            let asked = change.apply(&self.config.sampling);
            asked.check()?;
            self.config.sampling = asked;
            self.ingest.sampling = asked;
            self.ready_vacant();
        }
        for (slot, asked) in changes {
            self.ask(slot, asked);
        }
        Ok(self.samplings().into_iter().filter(|of| chosen.contains(&of.pid)).collect())
    }
}
