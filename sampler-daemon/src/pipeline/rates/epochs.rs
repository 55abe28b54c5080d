//! Puts new rates into force. At each change of a rate, the exact totals of the process are divided
//! by rate (module `epochs` of the store).

use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::totals::by_class;
use crate::pipeline::worker::Worker;
use crate::store::epochs::{Band, Rates, band, rates};
use crate::store::{Designs, ProcessId, ProcessRecord};
use sampler_common::limits::CLASSES;

impl ProcessRecord {
    /// The bands (octaves) of the rates that were in force since the totals were last read.
    pub(in crate::pipeline) fn bands(&self) -> [Band; CLASSES] {
        match &self.epochs {
            Some(epochs) => epochs.bands(),
            None => self.sampling.unseen.map(|unseen| band(unseen.into())),
        }
    }
}

impl Worker {
    /// Puts the designs in the record of the process in `slot` into force. Until now the designs
    /// `before` were in force. `unseen` is what may have gone unseen at their rates, per unit of
    /// hazard.
    pub(super) fn put_into_force(
        &mut self,
        slot: u32,
        process: ProcessId,
        before: &Designs,
        unseen: &[(f64, f64); CLASSES],
    ) {
        let designs = self.ingest.processes.get(process).sampling.designs;
        if designs == *before {
            self.kernel.slots.set_designs(slot, &designs);
            return;
        }
        let next = rates(&designs);
        let first = self.kernel.totals.read(slot);
        self.kernel.slots.set_designs(slot, &designs);
        let last = self.kernel.totals.read(slot);
        // The level is read after the totals. The eBPF program records a level before it puts the
        // lower rate into force, so no call of these totals has an unknown level.
        let level = self.kernel.slots.take_ring_level(slot);
        let record = self.ingest.processes.get_mut(process);
        let until_now: Rates = unseen.map(Into::into);
        let epochs = record.epochs_from(&until_now);
        if level > 0 {
            epochs.note(&at_ring_level(before, level));
        }
        match (first, last) {
            (Ok(first), Ok(last)) => {
                let border = epochs.border(&by_class(&first), &by_class(&last), &next);
                let bands = epochs.bands();
                epochs.close(&border, &next);
                self.ingest.windows.observe(process, &border, &bands, &[]);
            }
            // The totals at this moment are unknown.
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!("{error:#}");
                epochs.note(&next);
            }
        }
        if level > 0 {
            self.note_level(slot, process, level);
        }
    }

    /// Records that the eBPF program has lowered the rates of the process in `slot` to this level
    /// of ring pressure, at some time since its totals were last read.
    pub(super) fn note_level(&mut self, slot: u32, process: ProcessId, level: u32) {
        let seen = self.ingest.windows.seen(process);
        let record = self.ingest.processes.get_mut(process);
        let (designs, was_raised_by_ring) =
            (record.sampling.designs, record.sampling.is_raised_by_ring);
        let epochs = record.epochs();
        if !was_raised_by_ring {
            epochs.close(&seen, &rates(&designs));
        }
        epochs.note(&at_ring_level(&designs, level));
        let ring_raises = self.kernel.slots.ring_raises(slot);
        let since_ns = self.pressure.ring_levels_read_ns();
        let sampling = std::sync::Arc::make_mut(&mut record.sampling);
        sampling.ring_raises = ring_raises;
        sampling.is_raised_by_ring = true;
        sampling.note_ring_level(level, since_ns);
        self.pressure.watch(slot);
    }

    /// Ends the epoch at the lower rates: the designs of the process in `slot` are in force again.
    /// Returns false if the eBPF program has lowered the rates again meanwhile.
    pub(super) fn end_ring_pressure(&mut self, slot: u32) -> bool {
        let Some(process) = self.ingest.table.id_of(slot) else {
            return true;
        };
        let totals = match self.kernel.totals.read(slot) {
            Ok(totals) => by_class(&totals),
            Err(error) => {
                tracing::warn!("{error:#}");
                return true; // The epoch goes on, at the lower rate.
            }
        };
        if self.note_ring_pressure(slot) > 0 {
            return false;
        }
        let record = self.ingest.processes.get_mut(process);
        let next = rates(&record.sampling.designs);
        let bands = record.bands();
        record.epochs().close(&totals, &next);
        self.ingest.windows.observe(process, &totals, &bands, &[]);
        true
    }
}

impl Ingest {
    /// Records that the live samples of the process in `slot` are thinned to the rates in force.
    pub(in crate::pipeline) fn note_thinned(&mut self, slot: u32) {
        let Some(profiled) = self.table.get(slot) else { return };
        let record = self.processes.get_mut(profiled.id);
        let now = rates(&record.sampling.designs);
        record.epochs().note_thinned(&now);
    }
}

fn at_ring_level(designs: &Designs, level: u32) -> Rates {
    rates(&designs.map(|design| design.at_ring_level(level)))
}
