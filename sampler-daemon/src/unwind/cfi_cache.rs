//! Call frame information of modules, bounded by bytes.

use super::cfi::Cfi;
use super::module::ModuleId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of unwind sections held. At the bound those that no process uses are dropped; when that does not help,
/// further modules have no unwind information: stacks are guessed by frame pointers there.
pub const MAX_UNWIND_BYTES: usize = 128 << 20;

/// No room for a module's unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What was read so far; none for a module that has no call frame information.
#[derive(Debug, Default)]
pub(super) struct CfiCache {
    entries: FxHashMap<ModuleId, Option<Arc<Cfi>>>,
    bytes: usize,
}

impl CfiCache {
    pub(super) fn get(&self, id: ModuleId) -> Option<&Option<Arc<Cfi>>> {
        self.entries.get(&id)
    }

    pub(super) fn keep(
        &mut self,
        id: ModuleId,
        cfi: Option<Cfi>,
    ) -> Result<Option<Arc<Cfi>>, Full> {
        let size = cfi.as_ref().map_or(0, Cfi::size);
        if self.bytes + size > MAX_UNWIND_BYTES {
            // What no image holds.
            self.entries.retain(|_, it| it.as_ref().is_none_or(|it| Arc::strong_count(it) > 1));
            self.bytes = self.entries.values().flatten().map(|it| it.size()).sum();
        }
        if self.bytes + size > MAX_UNWIND_BYTES {
            return Err(Full);
        }
        self.bytes += size;
        let cfi = cfi.map(Arc::new);
        self.entries.insert(id, cfi.clone());
        Ok(cfi)
    }
}
