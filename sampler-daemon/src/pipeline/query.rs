//! Answers the requests of clients.

use super::command::{Command, SamplingChange, SamplingReport};
use super::worker::Worker;
use crate::inspect::process::owner;
use crate::pipeline::records::ingest::Ingest;
use crate::store::{Criterion, Selector};
use rustc_hash::FxHashMap;
use std::ops::ControlFlow;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Maximum time for which requests are answered in one turn. Clients may send requests without end,
/// and meanwhile programs pay for probes that should be removed.
const ANSWERING: Duration = Duration::from_millis(20);

impl Worker {
    /// Answers waiting requests for a while. Returns whether there may be more; breaks on a request
    /// to stop.
    pub(super) fn answer_some(&mut self) -> ControlFlow<(), bool> {
        let begin = Instant::now();
        while begin.elapsed() < ANSWERING {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    return ControlFlow::Break(());
                }
                Ok(Command::SetSampling { selector, change, owner, reply }) => {
                    self.read_until_now();
                    drop(reply.send(self.set_sampling(&selector, &change, owner)));
                }
                Ok(command) => {
                    self.read_until_now_for(&command);
                    self.answer(command);
                }
                Err(TryRecvError::Empty) => return ControlFlow::Continue(false),
            }
        }
        ControlFlow::Continue(true)
    }

    /// Changes all chosen processes or none: a change that one of them cannot have is refused.
    fn set_sampling(
        &mut self,
        selector: &Selector,
        change: &SamplingChange,
        owner: Option<u32>,
    ) -> Result<Vec<SamplingReport>, String> {
        if let Some(budget) = self.config.windows {
            return Err(format!(
                "samplerd runs with --windows {budget}, and samples as much as that pays for (start it without to choose an interval)"
            ));
        }
        let chosen = self.ingest.chosen_running(selector)?;
        if let Some(user) = owner {
            check_owner(user, selector, &chosen)?;
        }
        let mut changes = Vec::new();
        for slot in chosen.values() {
            let Some(record) = self.ingest.sampling_of(*slot) else { continue };
            let requested = change.apply(&record.requested);
            requested.check()?;
            changes.push((*slot, requested));
        }
        if selector.is_all() {
            let requested = change.apply(&self.config.sampling);
            requested.check()?;
            self.config.sampling = requested;
            self.ingest.sampling = requested;
            self.ready_vacant();
        }
        for (slot, requested) in changes {
            self.request_sampling(slot, requested);
            self.set_library_interval(slot, requested.interval_bytes);
        }
        Ok(self.ingest.samplings().into_iter().filter(|of| chosen.contains_key(&of.pid)).collect())
    }
}

impl Ingest {
    /// Slots of the running processes that a selector chooses, by pid.
    fn chosen_running(&self, selector: &Selector) -> Result<FxHashMap<u32, u32>, String> {
        let running: FxHashMap<u32, u32> =
            self.table.all_attached().map(|(slot, of, _)| (of.pid, slot)).collect();
        for criterion in &selector.criteria {
            if let Criterion::Pid(pid) = criterion
                && !running.contains_key(pid)
            {
                return Err(format!("pid {pid}: not being profiled (see: sampler ps)"));
            }
        }
        let is_chosen = |slot: &u32| {
            let profiled = self.table.get(*slot);
            profiled.is_some_and(|of| selector.matches(self.processes.get(of.id).who()))
        };
        let chosen: FxHashMap<u32, u32> =
            running.into_iter().filter(|(_, slot)| is_chosen(slot)).collect();
        if chosen.is_empty() && !selector.is_all() {
            return Err(format!("{selector}: no process that runs is that (see: sampler ps)"));
        }
        Ok(chosen)
    }
}

/// Checks that all of the chosen processes belong to a user who is not root.
fn check_owner(user: u32, selector: &Selector, chosen: &FxHashMap<u32, u32>) -> Result<(), String> {
    if selector.is_all() {
        return Err(format!(
            "user {user} may only change processes of their own (choose them: --pid PID)"
        ));
    }
    let of_others = chosen.keys().filter(|pid| owner(**pid) != Some(user)).min();
    match of_others {
        None => Ok(()),
        Some(pid) => Err(format!(
            "pid {pid}: is not a process of user {user} (ask as root, or as its owner)"
        )),
    }
}
