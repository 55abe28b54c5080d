//! How much larger than requested the blocks are that live samples stand for. Known of glibc's allocator only.

use crate::inspect::usable::Blocks;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::estimate::ratio::RatioSums;

/// Blocks looked at for one answer, over all its processes.
const MAX_BLOCKS: usize = 4096;

/// What was found in the headers of live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usable {
    /// Usable to requested bytes.
    pub sums: RatioSums,
    /// Headers that made no sense, or could not be read.
    pub refused: u64,
}

impl Usable {
    /// Adds that of another process.
    pub(super) fn add(&mut self, other: &Usable) {
        self.sums.add(&other.sums);
        self.refused += other.refused;
    }
}

impl Worker {
    /// Of each of the processes that has one allocator, glibc's; of those that hold very much, a part of it.
    pub(super) fn usable(&self, processes: &[ProcessId]) -> FxHashMap<ProcessId, Usable> {
        let mut found: FxHashMap<ProcessId, Usable> = FxHashMap::default();
        let mut memories = FxHashMap::default();
        let asked: FxHashSet<&ProcessId> = processes.iter().collect();
        for (slot, profiled) in self.ingest.table.iter() {
            let is_glibc = profiled.allocators.iter().all(|allocator| allocator.name == "glibc");
            if is_glibc && !profiled.allocators.is_empty() && asked.contains(&profiled.id) {
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
        let asked = entries.iter().filter(|(key, _)| memories.contains_key(&key.space.slot));
        // Keys are hashed, so that the first ones are no particular ones.
        for (key, entry) in asked.take(MAX_BLOCKS) {
            let (Some(live), Some(memory)) =
                (self.ingest.live.get(entry.sample), memories.get(&key.space.slot))
            else {
                continue;
            };
            let Some(inclusion) = live.sample.inclusion() else { continue };
            let usable = memory.usable(key.pointer, entry.size);
            // Freed while it was read: the header was another block's, or none.
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
