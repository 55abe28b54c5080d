//! Processes that are not profiled because probes could harm them, where processes come by themselves.
//!
//! Such a process has no slot, so that nothing of it is counted, and a record that says why: from when it is found, however short it
//! is, to its end and after. One that was profiled until it became harmful ends with what was seen, and gets a second record.
//!
//! Where processes are listed, one that could be harmed is an error ([`super::attach::AttachError`]).

use super::facts;
use super::worker::Worker;
use crate::bpf::ProbeEngine;
use crate::bpf::filtered::returns_pass;
use crate::inspect::hazard::{self, Hazard};
use crate::inspect::process::Process;
use crate::store::{ClassTotals, ProcessId, ProcessRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::counters::Outcome;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Refused processes that are held by a pidfd, at most; further ones count as exited at once.
const MAX_RUNNING: usize = 4096;
/// For so long a list of processes in which no return may be probed is used again: it is made by a walk over all threads of the machine.
const DIVERTED_AGE: Duration = Duration::from_millis(50);
/// Said where links that processes share reach more of them than the kernel lists.
const ELSEWHERE: &str = "outside samplerd's pid namespace no process is known: one with Syscall User Dispatch would be killed by a return probe in a file \
     that it shares (use session probes, Linux 6.13, or the host's pid namespace)";
/// Said of what a process was before it became harmful.
const BECAME: &str = "not profiled any more";

/// Refused processes that run, by pid.
#[derive(Default)]
pub(super) struct Refused {
    running: FxHashMap<u32, (ProcessId, Process)>,
    /// Those in which no return may be probed, and when they were listed.
    diverted: Option<(Instant, FxHashSet<u32>)>,
}

impl Worker {
    /// What would harm process `pid`, if anything.
    pub(super) fn hazard(&mut self, pid: u32) -> Option<Hazard> {
        let diverted = || self.diverted().contains(&pid).then_some(Hazard::Diverted);
        hazard::check(pid, returns_pass).or_else(diverted)
    }

    /// Processes in which no return may be probed, where that is not decided call by call. Session probes decide it, but only the process's
    /// own: to another process's session link on the same file the kernel answers that every return is wanted.
    pub(super) fn diverted(&mut self) -> FxHashSet<u32> {
        if !self.are_returns_undecided() {
            return FxHashSet::default();
        }
        match &self.refused.diverted {
            Some((listed, known)) if listed.elapsed() < DIVERTED_AGE => return known.clone(),
            _ => {}
        }
        match self.kernel.diverted() {
            Ok(diverted) => {
                self.refused.diverted = Some((Instant::now(), diverted.clone()));
                diverted
            }
            Err(error) => {
                tracing::warn!("not known which processes a return probe would kill: {error:#}");
                FxHashSet::default()
            }
        }
    }

    /// Whether a return probe can kill a process, and is not decided on call by call.
    fn are_returns_undecided(&self) -> bool {
        let decides = self.kernel.engine() == ProbeEngine::Session;
        let is_alone = !self.has_own_links() || !self.config.settings.shares;
        !(decides && is_alone) && hazard::returns_make_calls()
    }

    /// Refuses links that processes share where these would kill one that is known.
    pub(super) fn refuse_diverted(&mut self) -> anyhow::Result<()> {
        if self.has_own_links() || !self.are_returns_undecided() {
            return Ok(());
        }
        if self.config.settings.pid_namespace.is_some() {
            tracing::warn!("{ELSEWHERE}");
        }
        match self.diverted().iter().min() {
            Some(pid) => anyhow::bail!("pid {pid}: {}", Hazard::Diverted),
            None => Ok(()),
        }
    }

    /// What would harm process `pid`; of one that is gone, as far as events have shown its program.
    pub(super) fn hazard_of(&mut self, pid: u32) -> Option<Hazard> {
        // It may end while it is looked at: then nothing is found in it.
        let present = Process::open_running(pid).ok().and_then(|_| self.hazard(pid));
        present.or_else(|| self.past_hazard(pid))
    }

    /// What would have harmed the last process that had `pid`; none where one has it now.
    fn past_hazard(&mut self, pid: u32) -> Option<Hazard> {
        // One that is just ending has a number, and no program any more.
        if Process::open_running(pid).is_ok() && hazard::has_program(pid) {
            return None;
        }
        let image = self.ingest.history.at(pid, u64::MAX)?;
        self.process_events.files().has_go_program(&image.mappings).then_some(Hazard::Go)
    }

    /// Process `pid` has mapped a program that Go's linker made.
    pub(super) fn mapped_go_program(&mut self, pid: u32) {
        // What does not belong to the tree is not looked at.
        let is_ours = !self.is_tree() || self.kernel.targets.knows(pid);
        if is_ours && !self.exclude_if_listed(pid) {
            let hazard = self.hazard_of(pid);
            hazard.into_iter().for_each(|hazard| self.refuse(pid, hazard));
        }
    }

    /// Process `pid` is not profiled from now on.
    pub(super) fn refuse(&mut self, pid: u32, hazard: Hazard) {
        if let Some(slot) = self.ingest.table.attached_slot(pid) {
            self.end_harmed(slot, hazard);
        }
        if let Err(error) = self.kernel.targets.exclude(pid) {
            tracing::warn!(pid, "{error:#}");
        }
        let process = Process::open_running(pid).ok();
        if process.is_none() {
            // The next process of this number is another one.
            self.kernel.targets.forget(pid);
        }
        let mut record = ProcessRecord::new(pid, self.ingest.default_sampling());
        record.refused = true;
        record.blind = vec![hazard.to_string().into()];
        record.final_totals = Some(Box::new(ClassTotals::default()));
        match &process {
            Some(process) => facts::read(&mut record, process),
            None => self.recall(&mut record),
        }
        if let Some((id, _)) = self.refused.running.get(&pid) {
            let known = self.ingest.processes.get(*id);
            if (&known.exe, &known.blind) == (&record.exe, &record.blind) && process.is_some() {
                return;
            }
        }
        self.end_refusal(pid);
        tracing::info!(pid, comm = record.comm, "not profiled: {hazard}");
        let id = self.ingest.processes.insert(record);
        match process.filter(|_| self.refused.running.len() < MAX_RUNNING) {
            Some(process) => {
                self.refused.running.insert(pid, (id, process));
            }
            None => self.end_record(id),
        }
    }

    /// Process `pid` is profiled, or another one has its number.
    pub(super) fn end_refusal(&mut self, pid: u32) {
        if let Some((id, _)) = self.refused.running.remove(&pid) {
            self.end_record(id);
        }
    }

    /// Looks who has ended.
    pub(super) fn look_at_refused(&mut self) {
        let running = self.refused.running.iter();
        let ended = running.filter(|(_, (_, process))| !process.is_running());
        for pid in ended.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.end_refusal(pid);
        }
    }

    /// What was seen of a process before it was looked at is dropped.
    pub(super) fn drop_seen(&mut self, id: ProcessId) {
        let rows = self.ingest.rows.iter().filter(|(key, _)| key.process == id);
        let samples = rows.map(|(_, moments)| moments.alloc_objects.samples).sum();
        self.ingest.outcomes.add(Outcome::Excluded, samples);
        self.ingest.processes.get_mut(id).excluded = true;
    }

    /// Whether the process in this slot, which is gone, turns out to have been one that is not profiled.
    pub(super) fn is_refused_late(&mut self, slot: u32) -> bool {
        let Some(profiled) = self.ingest.table.get(slot).filter(|_| self.is_open()) else {
            return false;
        };
        let (pid, id, has_been) = (profiled.pid, profiled.id, profiled.has_exec());
        let Some(hazard) = self.past_hazard(pid) else { return false };
        if !has_been {
            self.drop_seen(id);
        }
        self.refuse(pid, hazard);
        true
    }

    /// The process in this slot has become one that probes could harm.
    fn end_harmed(&mut self, slot: u32, hazard: Hazard) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let id = profiled.id;
        self.detach_exited(&[slot]);
        let record = self.ingest.processes.get_mut(id);
        let totals = record.final_totals.as_ref();
        if totals.is_some_and(|totals| totals.sum().alloc_objects == 0) {
            record.excluded = true;
        } else {
            // Calls of the new program may be among them, and not all of these.
            record.final_totals = None;
        }
        record.blind.push(format!("{BECAME}: {hazard}").into());
    }

    fn end_record(&mut self, id: ProcessId) {
        self.ingest.processes.get_mut(id).exited = Some(SystemTime::now());
        self.ingest.exit(id);
    }

    /// What events have shown of a process that is gone.
    fn recall(&self, record: &mut ProcessRecord) {
        let image = self.ingest.history.at(record.pid, u64::MAX);
        let exe = image.and_then(|image| image.exe()).unwrap_or_default();
        record.exe = exe.to_owned();
        let name = Path::new(exe).file_name().unwrap_or_default().to_string_lossy();
        record.comm = name.chars().take(15).collect();
    }
}
