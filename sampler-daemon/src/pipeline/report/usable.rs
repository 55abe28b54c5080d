//! How much larger than requested live blocks are. It is known for glibc's allocator only.

use crate::inspect::allocator::usable::Blocks;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::estimate::ratio::RatioSums;

/// Blocks that are read for one answer, over all its processes.
const MAX_BLOCKS: usize = 4096;

/// Findings in the headers of live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usable {
    /// Ratio of usable to requested bytes.
    pub sums: RatioSums,
    /// Headers that made no sense, or could not be read.
    pub refused: u64,
}

impl Usable {
    /// Adds the findings of another process.
    pub(super) fn add(&mut self, other: &Usable) {
        self.sums.add(&other.sums);
        self.refused += other.refused;
    }
}

impl Worker {
    /// The findings of each process whose only allocator is glibc's. Of processes that hold very
    /// much, only a part is read.
    pub(super) fn usable(&self, processes: &[ProcessId]) -> FxHashMap<ProcessId, Usable> {
        let mut found: FxHashMap<ProcessId, Usable> = FxHashMap::default();
        let mut memories = FxHashMap::default();
        let requested: FxHashSet<&ProcessId> = processes.iter().collect();
        for (slot, profiled) in self.ingest.table.iter() {
            let is_glibc = profiled.allocators.iter().all(|allocator| allocator.name == "glibc");
            if is_glibc && !profiled.allocators.is_empty() && requested.contains(&profiled.id) {
                memories.extend(Blocks::open(profiled.pid).ok().map(|memory| (slot, memory)));
            }
        }
        if memories.is_empty() {
            return found;
        }
        let entries = match self.kernel.live.entries() {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!("read the live set: {error}");
                return found;
            }
        };
        let requested = entries.iter().filter(|(key, _)| memories.contains_key(&key.space.slot));
        // Keys are hashed, so the first ones are an arbitrary choice.
        for (key, entry) in requested.take(MAX_BLOCKS) {
            let (Some(live), Some(memory)) =
                (self.ingest.live.get(entry.sample), memories.get(&key.space.slot))
            else {
                continue;
            };
            let Some(inclusion) = live.sample.inclusion() else { continue };
            let usable = memory.usable(key.pointer, entry.size);
            // The block was freed while it was read: the header was another block's, or none.
            if !self.kernel.live.holds(key, entry.sample) {
                continue;
            }
            let of = found.entry(live.process).or_default();
            match usable {
                Some(usable) => {
                    of.sums.add_sample(usable as f64, entry.size as f64, inclusion);
                }
                None => of.refused += 1,
            }
        }
        found
    }
}
