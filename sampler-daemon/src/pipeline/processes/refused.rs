//! Newly appeared processes that are not profiled because probes could harm them.
//!
//! A refused process has no slot, so nothing of it is counted. It has a record with the reason as
//! soon as it is found. The record stays after the end of the process. If probes become dangerous
//! for a profiled process, its profile ends, and it gets a second record.
//!
//! If such a process is given with `--pid`, that is an error ([`super::attach::AttachError`]).

use super::facts;
use crate::bpf::ProbeEngine;
use crate::bpf::filtered::returns_pass;
use crate::inspect::hazard::{self, Hazard};
use crate::inspect::process::Process;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::{ClassTotals, ProcessId, ProcessRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::counters::Outcome;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Refused processes that are held by a pidfd, at most. Further ones count as exited at once.
const MAX_RUNNING: usize = 4096;
/// How long a list of processes with Syscall User Dispatch is reused. Making the list takes a walk
/// over all threads of the machine.
const DIVERTED_AGE: Duration = Duration::from_millis(50);
/// The warning if shared links may reach endangered processes that samplerd cannot list.
const UNLISTED_WARNING: &str = "outside samplerd's pid namespace no process is known: one with Syscall User Dispatch would be killed by a return probe in a file \
     that it shares (use session probes, Linux 6.13, or the host's pid namespace)";
/// The reason that the ended profile of a process gets when probes become dangerous for the
/// process.
const BECAME_DANGEROUS: &str = "not profiled any more";

/// Refused running processes, by pid.
#[derive(Default)]
pub(in crate::pipeline) struct Refused {
    running: FxHashMap<u32, (ProcessId, Process)>,
    /// Processes with Syscall User Dispatch, and when they were listed.
    diverted: Option<(Instant, FxHashSet<u32>)>,
}

impl Worker {
    /// What would harm process `pid`, if anything.
    pub(in crate::pipeline) fn hazard(&mut self, pid: u32) -> Option<Hazard> {
        let diverted = || self.diverted().contains(&pid).then_some(Hazard::Diverted);
        hazard::check(pid, returns_pass).or_else(diverted)
    }

    /// Processes in which no return may be probed because of Syscall User Dispatch. None, if
    /// session probes decide that at each call. Only a process's own session probes do so. If
    /// another process has a session link on the same file, the kernel probes every return.
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

    /// Whether a return probe can kill a process and is not decided at each call.
    fn are_returns_undecided(&self) -> bool {
        let decides = self.kernel.engine() == ProbeEngine::Session;
        let is_alone = !self.config.has_own_links() || !self.config.settings.shares;
        !(decides && is_alone) && hazard::returns_make_calls()
    }

    /// Refuses shared links that would kill a known process.
    pub(in crate::pipeline) fn refuse_diverted(&mut self) -> anyhow::Result<()> {
        if self.config.has_own_links() || !self.are_returns_undecided() {
            return Ok(());
        }
        if self.config.settings.pid_namespace.is_some() {
            tracing::warn!("{UNLISTED_WARNING}");
        }
        match self.diverted().iter().min() {
            Some(pid) => anyhow::bail!("pid {pid}: {}", Hazard::Diverted),
            None => Ok(()),
        }
    }

    /// What would harm process `pid`. For a process that is gone, the events of its program are
    /// checked.
    pub(super) fn hazard_of(&mut self, pid: u32) -> Option<Hazard> {
        // The process may end during the check; then no hazard is found.
        let present = Process::open_running(pid).ok().and_then(|_| self.hazard(pid));
        present.or_else(|| self.past_hazard(pid))
    }

    /// What would have harmed the last process that had `pid`; none if a process has it now.
    fn past_hazard(&mut self, pid: u32) -> Option<Hazard> {
        // A process that is just ending has a pid, but no program any more.
        if Process::open_running(pid).is_ok() && hazard::has_program(pid) {
            return None;
        }
        let image = self.ingest.history.at(pid, u64::MAX)?;
        self.process_events.files().has_go_program(&image.mappings).then_some(Hazard::Go)
    }

    /// Handles that process `pid` has mapped a program that Go's linker made.
    pub(super) fn mapped_go_program(&mut self, pid: u32) {
        // Processes outside the tree are not checked.
        let is_ours = !self.config.is_tree() || self.kernel.targets.knows(pid);
        if is_ours && !self.exclude_if_listed(pid) {
            let hazard = self.hazard_of(pid);
            hazard.into_iter().for_each(|hazard| self.refuse(pid, hazard));
        }
    }

    /// Refuses to profile process `pid` from now on.
    pub(super) fn refuse(&mut self, pid: u32, hazard: Hazard) {
        if let Some(slot) = self.ingest.table.attached_slot(pid) {
            self.end_harmed(slot, hazard);
        }
        if let Err(error) = self.kernel.targets.exclude(pid) {
            tracing::warn!(pid, "{error:#}");
        }
        let process = Process::open_running(pid).ok();
        if process.is_none() {
            // The next process with this pid is another one.
            self.kernel.targets.forget(pid);
        }
        let mut record = ProcessRecord::new(pid, self.ingest.default_sampling());
        record.refused = true;
        record.blind_spots = vec![hazard.to_string().into()];
        record.final_totals = Some(Box::new(ClassTotals::default()));
        match &process {
            Some(process) => facts::read(&mut record, process),
            None => self.ingest.recall(&mut record),
        }
        if let Some((id, _)) = self.refused.running.get(&pid) {
            let known = self.ingest.processes.get(*id);
            if (&known.exe, &known.blind_spots) == (&record.exe, &record.blind_spots)
                && process.is_some()
            {
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
            None => self.ingest.end_record(id),
        }
    }

    /// Ends the refusal of `pid`: the process is profiled, or another process has its pid.
    pub(super) fn end_refusal(&mut self, pid: u32) {
        if let Some((id, _)) = self.refused.running.remove(&pid) {
            self.ingest.end_record(id);
        }
    }

    /// Checks which refused processes have ended.
    pub(super) fn look_at_refused(&mut self) {
        let running = self.refused.running.iter();
        let ended = running.filter(|(_, (_, process))| !process.is_running());
        for pid in ended.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.end_refusal(pid);
        }
    }

    /// Whether the process in this slot, which is gone, turns out to be one that is not profiled.
    pub(super) fn is_refused_late(&mut self, slot: u32) -> bool {
        let Some(profiled) = self.ingest.table.get(slot).filter(|_| self.config.is_open()) else {
            return false;
        };
        let (pid, id, has_been) = (profiled.pid, profiled.id, profiled.has_exec());
        let Some(hazard) = self.past_hazard(pid) else { return false };
        if !has_been {
            self.ingest.drop_seen(id);
        }
        self.refuse(pid, hazard);
        true
    }

    /// Ends the profile of the process in this slot, because probes could harm it now.
    fn end_harmed(&mut self, slot: u32, hazard: Hazard) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let id = profiled.id;
        self.detach_exited(&[slot]);
        let record = self.ingest.processes.get_mut(id);
        let totals = record.final_totals.as_ref();
        if totals.is_some_and(|totals| totals.sum().alloc_objects == 0) {
            record.excluded = true;
        } else {
            // The totals may include some calls of the new program, but not all.
            record.final_totals = None;
        }
        record.blind_spots.push(format!("{BECAME_DANGEROUS}: {hazard}").into());
    }
}

impl Ingest {
    /// Drops what was seen of a process before it was inspected.
    pub(super) fn drop_seen(&mut self, id: ProcessId) {
        let rows = self.rows.iter().filter(|(key, _)| key.process == id);
        let samples = rows.map(|(_, moments)| moments.alloc_objects.samples).sum();
        self.outcomes.add(Outcome::Excluded, samples);
        self.processes.get_mut(id).excluded = true;
    }

    fn end_record(&mut self, id: ProcessId) {
        self.processes.get_mut(id).exited = Some(SystemTime::now());
        self.exit(id);
    }

    /// Fills in the record of a process that is gone from events.
    fn recall(&self, record: &mut ProcessRecord) {
        let image = self.history.at(record.pid, u64::MAX);
        let exe = image.and_then(|image| image.exe()).unwrap_or_default();
        record.exe = exe.to_owned();
        let name = Path::new(exe).file_name().unwrap_or_default().to_string_lossy();
        record.comm = name.chars().take(15).collect();
    }
}
