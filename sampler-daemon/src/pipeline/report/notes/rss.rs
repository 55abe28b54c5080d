//! Compares the memory of processes with what a profile reports as held.

use crate::inspect::process::memory::{self, Memory};
use crate::pipeline::command::ProfileRequest;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::report::scope::Scope;
use crate::pipeline::report::usable::Usable;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use sampler_common::estimate::{Confidence, Estimate};
use sampler_common::note::{self, Note};
use sampler_common::profile::Kind;

impl Worker {
    /// How much larger than requested the live blocks are; `None` if that is not known for all
    /// processes.
    pub(in crate::pipeline::report) fn usable_note(
        &self,
        processes: &[ProcessId],
        confidence: Confidence,
    ) -> Option<Note> {
        let mut usable = Usable::default();
        self.usable(processes).values().for_each(|one| usable.add(one));
        let ratio = usable.sums.ratio(1.0, confidence)?;
        Some(Note::Memory(note::Memory::Usable(ratio, usable.refused)))
    }
}

impl Ingest {
    /// Pid and start of a running process.
    pub(in crate::pipeline) fn running(&self, id: ProcessId) -> Option<(u32, u64)> {
        let process = self.table.attached(self.slot_of(id)?)?.process.as_ref()?;
        Some((process.pid, process.start_ticks))
    }

    /// The running ones of `processes`, if everything they hold now is requested.
    pub(in crate::pipeline::report) fn running_for_rss(
        &self,
        processes: &[ProcessId],
        request: &ProfileRequest,
    ) -> Vec<(u32, u64)> {
        match request.kind == Kind::Live && request.scope == Scope::ALL {
            true => processes.iter().filter_map(|id| self.running(*id)).collect(),
            false => Vec::new(),
        }
    }
}

/// The note that compares held memory with the kernel's figures; `None` if no process is left.
/// Reading `/proc` takes a while, so it is not done on the worker's thread.
pub(in crate::pipeline::report) async fn note(
    running: Vec<(u32, u64)>,
    held: Estimate,
) -> Option<Note> {
    if running.is_empty() {
        return None;
    }
    let read = tokio::task::spawn_blocking(move || {
        let each = running.into_iter().filter_map(|(pid, start)| memory::read(pid, start));
        each.collect::<Vec<Memory>>()
    });
    let each = read.await.ok().filter(|each| !each.is_empty())?;
    let processes = each.len();
    let Memory { heap_bytes, rss_bytes, .. } = each.into_iter().sum();
    Some(Note::Memory(note::Memory::Resident { held, processes, heap_bytes, rss_bytes }))
}
