//! The rates at which gathered processes were sampled.

use super::gather::Gathered;
use crate::store::epochs::Band;
use crate::store::{ClassTotals, ProcessId, ProcessRecord};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Epoch, Stratum, Unseen};
use std::collections::BTreeMap;

/// Exact bytes and objects by process and size class, and by band of rates.
pub(super) type ByBand = FxHashMap<(ProcessId, u8), BTreeMap<Band, (u64, u64)>>;

impl Gathered {
    /// Adds what a process allocated at each rate, in its existing strata: since the attach, or
    /// `by_band` in a window.
    pub(super) fn add_epochs(
        &mut self,
        (process, id): (u32, ProcessId),
        record: &ProcessRecord,
        exact: Option<&ClassTotals>,
        by_band: Option<&ByBand>,
    ) {
        // Allocations that are self-sampled pass at unknown rates.
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
        let max_unseen = epochs.iter().map(|of| of.alloc.max(of.inuse)).reduce(Unseen::max);
        // Samples without counted totals: their borders differ slightly from those of the totals.
        let Some(max_unseen) = max_unseen else { return };
        (totals.unseen_objects, totals.unseen_bytes) = (max_unseen.objects, max_unseen.bytes);
        self.reference.epochs.insert(stratum, epochs);
    }

    /// Forgets the rates of samples in strata with only one rate.
    pub(super) fn forget_rates(&mut self) {
        let Gathered { rows, lost, reference, .. } = self;
        rows.values_mut().for_each(|row| row.forget_rates(|of| reference.epochs.contains_key(of)));
        lost.forget_rates(|of| reference.epochs.contains_key(of));
        reference.forget_rates();
    }
}
