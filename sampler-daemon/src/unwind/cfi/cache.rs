//! Call frame information of modules, bounded by bytes. Each process has a share
//! ([`share`](sampler_common::share)).

use super::Cfi;
use crate::unwind::module::ModuleId;
use rustc_hash::FxHashMap;
use sampler_common::share::{Holder, Shares};
use std::sync::Arc;

/// Most bytes of unwind sections held. At the bound, sections that no process uses are dropped. If
/// that is not enough, further modules have no unwind information, and their stacks are guessed by
/// frame pointers.
pub const MAX_UNWIND_BYTES: usize = 128 << 20;

/// The call frame information of a module, and the process that had the module first.
#[derive(Debug)]
struct Entry {
    cfi: Option<Arc<Cfi>>,
    by: Holder<u32>,
}

impl Entry {
    fn size(&self) -> usize {
        self.cfi.as_ref().map_or(0, |cfi| cfi.size())
    }
}

/// No room for a module's unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) struct Full;

/// The call frame information that was read so far; none for a module without it.
#[derive(Debug, Default)]
pub(in crate::unwind) struct CfiCache {
    entries: FxHashMap<ModuleId, Entry>,
    bytes: usize,
    shares: Shares<u32>,
}

impl CfiCache {
    pub(in crate::unwind) fn get(&self, id: ModuleId) -> Option<&Option<Arc<Cfi>>> {
        self.entries.get(&id).map(|entry| &entry.cfi)
    }

    /// Forgets the modules that `keep` rejects.
    pub(in crate::unwind) fn retain(&mut self, keep: impl Fn(ModuleId) -> bool) {
        self.entries.retain(|id, _| keep(*id));
        self.recount();
    }

    fn recount(&mut self) {
        self.bytes = self.entries.values().map(Entry::size).sum();
        self.shares.recount_sizes(self.entries.values().map(|entry| (entry.by, entry.size())));
    }

    pub(in crate::unwind) fn keep(
        &mut self,
        id: ModuleId,
        by: Holder<u32>,
        cfi: Option<Cfi>,
    ) -> Result<Option<Arc<Cfi>>, Full> {
        let size = cfi.as_ref().map_or(0, Cfi::size);
        if size > 0 && !self.take_room(by, size) {
            // Call frame information that no image holds is dropped.
            let is_held = |cfi: &Arc<Cfi>| Arc::strong_count(cfi) > 1;
            self.entries.retain(|_, entry| entry.cfi.as_ref().is_none_or(is_held));
            self.recount();
            if !self.take_room(by, size) {
                return Err(Full);
            }
        }
        self.bytes += size;
        let cfi = cfi.map(Arc::new);
        self.entries.insert(id, Entry { cfi: cfi.clone(), by });
        Ok(cfi)
    }

    /// Whether a process may hold `size` bytes more. If so, the bytes are counted as its own.
    fn take_room(&mut self, by: Holder<u32>, size: usize) -> bool {
        self.bytes + size <= MAX_UNWIND_BYTES
            && self.shares.grow_by(size, by, self.bytes, MAX_UNWIND_BYTES)
    }
}
