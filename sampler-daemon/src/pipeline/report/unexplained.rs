//! Anonymous memory that no block explains which is known to be held: what an allocator has that is not seen, among others.
//!
//! Of a process: unexplained = anonymous resident memory now − the same at the attach (or when its program was first looked at)
//! − the upper end of what it holds. Blocks from before the attach that are freed make that smaller. It is told where it is more than
//! what allocators add to blocks.

use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use crate::target::memory;
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Confidence, RowMoments, weighted};
use sampler_common::units::human_bytes;

/// Less than this is not told, bytes: stacks of threads, tables of allocators, data of libraries.
const MIN_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Part of what is held that headers, alignment and size classes may add to it.
const MAX_OVERHEAD: f64 = 0.5;
/// Processes named in a line; more are counted.
const NAMED: usize = 3;
/// Why there can be such memory.
const WHY: &str = "of anonymous memory since the attach is in no block known to be held: an allocator that is not seen, \
     memory mapped past malloc (--kind mapped), stacks, or freed blocks that an allocator keeps";

/// A process whose memory is to be compared with what it holds.
#[derive(Clone, Debug)]
pub struct Compared {
    pid: u32,
    start_ticks: u64,
    comm: String,
    /// Anonymous resident memory at the attach, bytes.
    before_bytes: u64,
    /// Upper end of what it holds, bytes.
    held_bytes: f64,
}

impl Worker {
    /// The running ones of these processes; none where nobody knows what is held.
    pub(super) fn compared(&self, processes: &[ProcessId]) -> Vec<Compared> {
        if self.is_held_unknown() {
            return Vec::new();
        }
        let mut held: FxHashMap<ProcessId, RowMoments> = FxHashMap::default();
        for (_, live) in self.ingest.live.iter() {
            held.entry(live.process).or_default().add_live(&live.sample);
        }
        let compared = processes.iter().filter_map(|id| {
            let (pid, start_ticks) = self.running(*id)?;
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

/// One line about all that have such memory; `/proc` takes its time, so this is away from the worker's thread.
pub(super) fn line(compared: &[Compared]) -> Option<String> {
    let read = compared.iter().filter_map(|of| {
        let now_bytes = memory::anonymous_bytes(of.pid, of.start_ticks)?;
        Some((of, of.unexplained_bytes(now_bytes)?))
    });
    text(read.collect())
}

fn text(mut found: Vec<(&Compared, f64)>) -> Option<String> {
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total = human_bytes(found.iter().map(|(_, bytes)| bytes).sum());
    match found.as_slice() {
        [] => None,
        [(one, _)] => Some(format!("pid {} ({}): {total} {WHY}", one.pid, one.comm)),
        many => {
            let named = many.iter().take(NAMED);
            let named =
                named.map(|(of, bytes)| format!("{} {}: {}", of.comm, of.pid, human_bytes(*bytes)));
            let more = if many.len() > NAMED { ", …" } else { "" };
            let named: Vec<String> = named.collect();
            Some(format!("{} processes ({}{more}): {total} {WHY}", many.len(), named.join(", ")))
        }
    }
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
    fn what_is_held_explains_itself_and_what_is_added_to_it() {
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

    #[test]
    fn the_most_is_told_first() {
        let all: Vec<Compared> = (1..=4).map(|pid| process(pid, 0, 0)).collect();
        let found =
            |number: usize| all.iter().take(number).map(|of| (of, f64::from(of.pid) * MIB as f64));
        assert_eq!(text(Vec::new()), None);
        let one = text(found(1).collect()).unwrap_or_default();
        assert!(one.starts_with("pid 1 (p1): 1.00 MiB of anonymous memory"), "{one}");
        let many = text(found(4).collect()).unwrap_or_default();
        assert!(
            many.starts_with(
                "4 processes (p4 4: 4.00 MiB, p3 3: 3.00 MiB, p2 2: 2.00 MiB, …): 10.0 MiB of"
            ),
            "{many}"
        );
    }
}
