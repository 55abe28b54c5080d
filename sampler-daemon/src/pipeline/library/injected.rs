//! The injected sampler may be added to or removed from a process while samplerd runs: by another
//! samplerd, or by hand (`sampler-inject eject`).
//!
//! Blocks that the process held at a removal cannot be followed any more, since nothing reports
//! their frees. These blocks are orphaned.
//! Orphaned blocks no longer count as held. They are counted ([`Outcome::Orphaned`]), and a note
//! reports their size.
//! A sampler that is injected again begins with empty tables, and knows nothing of these blocks.
//!
//! Every inspection of the process, and every answer, first reads from the process whether the
//! hooks are installed.

use crate::inspect::mappings;
use crate::inspect::process::injected::Image;
use crate::pipeline::worker::Worker;
use crate::store::Orphaned;
use sampler_common::counters::Outcome;
use sampler_common::sampling::Design;
use sampler_common::source::SampleSource;
use std::time::SystemTime;

/// Reported of a process while its sampler is removed.
const TAKEN_OUT: &str = "its sampler has been taken out (sampler-inject eject, or another samplerd): none of its allocations are seen (samplerd --inject puts it in again)";

/// The image of an injected process, as found by the last inspection.
pub(in crate::pipeline) struct InjectedImage {
    image: Image,
    /// Whether the image's hooks were installed; `None`: never read.
    was_hooked: Option<bool>,
}

impl InjectedImage {
    /// Finds the image of a process when its library is found; `None`: there is none.
    pub(in crate::pipeline) fn find(pid: u32) -> Option<InjectedImage> {
        let image = Image::find(pid, &mappings::read_some(pid).ok()?)?;
        Some(InjectedImage { image, was_hooked: None })
    }
}

impl Worker {
    /// Reads whether the hooks of the injected image in a process are installed.
    pub(in crate::pipeline) fn look_at_hooks(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let library = profiled.library.as_mut();
        let Some(injected) = library.and_then(|library| library.injected.as_mut()) else { return };
        // A process that cannot be read is exiting.
        let Some(is_hooked) = injected.image.is_hooked() else { return };
        let was_hooked = injected.was_hooked.replace(is_hooked);
        let (pid, id) = (profiled.pid, profiled.id);
        let record = self.ingest.processes.get_mut(id);
        if is_hooked {
            record.sources.insert(SampleSource::Injected);
            record.blind_spots.retain(|of| of.why != TAKEN_OUT);
            return;
        }
        // Uprobes of the process see what the sampler no longer sees.
        if !record.sources.contains(SampleSource::Uprobes)
            && !record.blind_spots.iter().any(|of| of.why == TAKEN_OUT)
        {
            record.blind_spots.push(TAKEN_OUT.into());
            record.has_unseen_allocations = true;
        }
        if was_hooked == Some(true) {
            tracing::warn!(pid, "{TAKEN_OUT}");
        }
        self.orphan_blocks(slot);
    }

    /// Ends the blocks of a process, which are not followed any more.
    fn orphan_blocks(&mut self, slot: u32) {
        // A thread inside the hooks may have sent one more sample since the last inspection.
        self.read_ring();
        // Blocks that uprobes have sampled are followed by uprobes.
        let ended = self.ingest.end_blocks_where(Outcome::Orphaned, |live| {
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
