//! What functions allocate whose return must not be probed: counted, and not seen to be held.

use super::worker::Worker;
use sampler_common::counting::Counted;
use sampler_common::wire::Role;

impl Worker {
    /// Says so of every process that has called such a function.
    pub(super) fn note_unseen(&mut self) {
        let slots: Vec<u32> = self.ingest.sources.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.note_unseen_of(slot));
    }

    /// As [`Worker::note_unseen`], of one process.
    pub(super) fn note_unseen_of(&mut self, slot: u32) {
        self.note_brake(slot);
        if self.kernel.hits.read(slot, Role::New).iter().all(Counted::is_zero) {
            return;
        }
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let throwing = |allocator: &&crate::target::allocator::Allocator| {
            allocator.functions.iter().any(|function| function.role == Role::New)
        };
        let Some(allocator) = source.allocators.iter().find(throwing) else { return };
        let line = format!(
            "{}: operator new may throw, so that its return must not be probed: \
             what it allocates is counted, and not seen to be held",
            allocator.path
        );
        let blind = &mut self.ingest.processes.get_mut(source.process).blind;
        if !blind.contains(&line) {
            blind.push(line);
        }
    }
}
