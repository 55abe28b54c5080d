//! What is known of the rates at which gathered processes were sampled.

use super::gather::Gathered;
use crate::store::epochs::Band;
use crate::store::{ClassTotals, ProcessId, ProcessRecord};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Epoch, Stratum, Unseen};
use std::collections::BTreeMap;

/// Exact bytes and objects by band of rates, of each process and size class.
pub(super) type ByBand = FxHashMap<(ProcessId, u8), BTreeMap<Band, (u64, u64)>>;

impl Gathered {
    /// What a process allocated at each rate, of the strata that are there: since attach, or `by_band` in a window.
    pub(super) fn add_epochs(
        &mut self,
        (process, id): (u32, ProcessId),
        record: &ProcessRecord,
        exact: Option<&ClassTotals>,
        by_band: Option<&ByBand>,
    ) {
        // What it samples by itself passes at rates that nobody knows.
        let Some(epochs) = record.epochs.as_ref().filter(|_| !record.sampling.samples_itself)
        else {
            return;
        };
        let nothing = BTreeMap::new();
        let all: Vec<Stratum> = self.reference.strata_of(process).map(|(of, _)| of).collect();
        for stratum in all {
            let class = usize::from(stratum.class);
            let of_class: Vec<Epoch> = match by_band {
                Some(by_band) => {
                    let bands = by_band.get(&(id, stratum.class)).unwrap_or(&nothing);
                    bands.iter().map(|(band, sum)| epochs.in_window(class, *band, *sum)).collect()
                }
                None => epochs.of_class(class, exact.unwrap_or(&ClassTotals::default())),
            };
            self.add_stratum(stratum, of_class);
        }
    }

    fn add_stratum(&mut self, stratum: Stratum, epochs: Vec<Epoch>) {
        let Some(totals) = self.reference.strata.get_mut(&stratum) else { return };
        let rarest = epochs.iter().map(|of| of.alloc.max(of.inuse)).reduce(Unseen::max);
        // Samples without anything counted: their borders are not quite those of the totals.
        let Some(rarest) = rarest else { return };
        (totals.unseen_objects, totals.unseen_bytes) = (rarest.objects, rarest.bytes);
        self.reference.epochs.insert(stratum, epochs);
    }

    /// Forgets at which rates samples were taken where there was but one.
    pub(super) fn forget_rates(&mut self) {
        let Gathered { rows, lost, reference, .. } = self;
        rows.values_mut().for_each(|row| row.forget_rates(|of| reference.epochs.contains_key(of)));
        lost.forget_rates(|of| reference.epochs.contains_key(of));
        reference.forget_rates();
    }
}
