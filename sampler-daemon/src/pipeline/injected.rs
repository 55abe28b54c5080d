//! The injected sampler is put into a process and taken out while samplerd listens: by another samplerd, or by hand (`sampler-inject eject`).
//!
//! Blocks that the process held then cannot be followed any more, since nothing reports their ends. Such blocks are orphaned. They do not count as
//! held from then on, they are counted ([`Outcome::Orphaned`]), and a note says how much they were. A sampler that is put in again begins with empty
//! tables, and knows nothing of them.
//!
//! Whether the hooks are in is read from the process at every look at it, and before every answer.

use super::worker::Worker;
use crate::inspect::injected::Image;
use crate::inspect::mappings;
use crate::store::Orphaned;
use sampler_common::counters::Outcome;
use sampler_common::sampling::Design;
use sampler_common::source::SampleSource;
use std::time::SystemTime;

/// Said of a process while its sampler is out.
const TAKEN_OUT: &str = "its sampler has been taken out (sampler-inject eject, or another samplerd): none of its allocations are seen (samplerd --inject puts it in again)";

/// The image of a process that is injected, as the last look found it.
pub(super) struct InjectedImage {
    image: Image,
    /// Whether its hooks were in; `None`: nobody has looked.
    was_hooked: Option<bool>,
}

impl InjectedImage {
    /// The one of a process, found when its library is; `None`: there is none.
    pub(super) fn find(pid: u32) -> Option<InjectedImage> {
        let image = Image::find(pid, &mappings::read_some(pid).ok()?)?;
        Some(InjectedImage { image, was_hooked: None })
    }
}

impl Worker {
    /// Looks whether the hooks of the image in a process are in.
    pub(super) fn look_at_hooks(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let library = profiled.library.as_mut();
        let Some(injected) = library.and_then(|library| library.injected.as_mut()) else { return };
        // One that cannot be read is exiting.
        let Some(is_hooked) = injected.image.is_hooked() else { return };
        let was_hooked = injected.was_hooked.replace(is_hooked);
        let (pid, id) = (profiled.pid, profiled.id);
        let record = self.ingest.processes.get_mut(id);
        if is_hooked {
            record.sources.insert(SampleSource::Injected);
            record.blind.retain(|of| of.why != TAKEN_OUT);
            return;
        }
        // Probes of its own see what the sampler does not any more.
        if !record.sources.contains(SampleSource::Uprobes)
            && !record.blind.iter().any(|of| of.why == TAKEN_OUT)
        {
            record.blind.push(TAKEN_OUT.into());
            record.has_unseen_allocations = true;
        }
        if was_hooked == Some(true) {
            tracing::warn!(pid, "{TAKEN_OUT}");
        }
        self.orphan_blocks(slot);
    }

    /// What a process holds is not followed any more.
    fn orphan_blocks(&mut self, slot: u32) {
        // A thread that was in the image may have sent one more since the last look.
        self.drain();
        // What its probes have sampled is followed by their probes.
        let ended = self.end_blocks_where(Outcome::Orphaned, |live| {
            live.space.slot == slot && live.sample.design.is_external()
        });
        let Some(profiled) = self.ingest.table.get(slot).filter(|_| !ended.is_empty()) else {
            return;
        };
        let record = self.ingest.processes.get_mut(profiled.id);
        let orphaned = record.orphaned.get_or_insert_with(|| Orphaned::new(SystemTime::now()));
        ended.iter().for_each(|live| orphaned.moments.add_live(&live.sample));
        self.forget_live(slot, |entry| Design::from_word(entry.design).is_external());
    }
}
