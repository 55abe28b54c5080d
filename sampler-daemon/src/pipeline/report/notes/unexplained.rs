//! Anonymous memory that no held block explains: among others, memory of an allocator that is not
//! seen.
//!
//! For a process: unexplained = anonymous resident memory now − the same at the attach − the upper
//! end of what it holds. (samplerd reads the second number when it first inspects the process, and
//! again after an `execve`.)
//!
//! Freed blocks from before the attach make the result smaller. It is reported if it exceeds the
//! overhead of allocators.

use crate::inspect::process::memory;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Confidence, RowMoments, weighted};
use sampler_common::note::{Memory, Note};

/// Smaller amounts are not reported, bytes: stacks of threads, tables of allocators, data of
/// libraries.
const MIN_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Part of held memory that headers, alignment and size classes may add to it.
const MAX_OVERHEAD: f64 = 0.5;

/// A process whose memory is to be compared with what it holds.
#[derive(Clone, Debug)]
pub struct Compared {
    pid: u32,
    start_ticks: u64,
    comm: String,
    /// Anonymous resident memory at the attach, bytes.
    before_bytes: u64,
    /// Upper end of what the process holds, bytes.
    held_bytes: f64,
}

impl Worker {
    /// The running ones of `processes`, to be compared; none if held memory is unknown.
    pub(in crate::pipeline::report) fn compared(&self, processes: &[ProcessId]) -> Vec<Compared> {
        if self.config.is_held_unknown() {
            return Vec::new();
        }
        let mut held: FxHashMap<ProcessId, RowMoments> = FxHashMap::default();
        for (_, live) in self.ingest.live.iter() {
            held.entry(live.process).or_default().add_live(&live.sample);
        }
        let compared = processes.iter().filter_map(|id| {
            let (pid, start_ticks) = self.ingest.running(*id)?;
            let record = self.ingest.processes.get(*id);
            let moments = held.get(id).map(|of| of.inuse_space).unwrap_or_default();
            let interval_bytes = record.sampling.largest_interval();
            Some(Compared {
                pid,
                start_ticks,
                comm: record.comm.clone(),
                before_bytes: record.anonymous_bytes?,
                held_bytes: weighted(&moments, interval_bytes, Confidence::DEFAULT).high,
            })
        });
        compared.collect()
    }
}

impl Compared {
    fn unexplained_bytes(&self, now_bytes: u64) -> Option<f64> {
        let come = now_bytes.saturating_sub(self.before_bytes) as f64;
        let unexplained = come - self.held_bytes;
        (unexplained >= MIN_BYTES + MAX_OVERHEAD * self.held_bytes).then_some(unexplained)
    }
}

/// The note on all processes with unexplained memory, largest first. Reading `/proc` takes a while,
/// so it is not done on the worker's thread.
pub(in crate::pipeline::report) fn note(compared: &[Compared]) -> Option<Note> {
    let read = compared.iter().filter_map(|of| {
        let now_bytes = memory::anonymous_bytes(of.pid, of.start_ticks)?;
        Some((of.pid, of.comm.clone(), of.unexplained_bytes(now_bytes)?))
    });
    let mut found: Vec<(u32, String, f64)> = read.collect();
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    (!found.is_empty()).then_some(Note::Memory(Memory::Unexplained(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(pid: u32, before_bytes: u64, held_bytes: u64) -> Compared {
        let comm = format!("p{pid}");
        Compared { pid, start_ticks: 0, comm, before_bytes, held_bytes: held_bytes as f64 }
    }

    #[test]
    fn large_growth_beyond_held_bytes_is_unexplained() {
        let one = process(1, 30 * MIB, 100 * MIB);
        assert_eq!(one.unexplained_bytes(180 * MIB), None);
        assert_eq!(one.unexplained_bytes(20 * MIB), None);
        assert_eq!(one.unexplained_bytes(230 * MIB), Some((100 * MIB) as f64));
        let nothing_held = process(1, 30 * MIB, 0);
        assert_eq!(nothing_held.unexplained_bytes(45 * MIB), None);
        assert_eq!(nothing_held.unexplained_bytes(94 * MIB), Some((64 * MIB) as f64));
        let no_interval = Compared { held_bytes: f64::INFINITY, ..nothing_held };
        assert_eq!(no_interval.unexplained_bytes(94 * MIB), None);
    }
}
