//! Upper bound of what a row may have in size classes, or at rates (the module `epoch`), without a
//! sample there.

use super::epoch::add_capacity;
use super::quantity::Quantity;
use super::unseen_capacity::UnseenCapacity;
use super::{Confidence, Reference, Row, RowMoments, Stratum, StratumTotals};

impl Reference {
    /// The strata of a process.
    pub fn strata_of(&self, process: u32) -> impl Iterator<Item = (Stratum, &StratumTotals)> {
        self.strata.range(Stratum::all_of(process)).map(|(stratum, totals)| (*stratum, totals))
    }

    /// The processes of `row`; all processes if the row has no stratum.
    pub(super) fn processes_of(&self, row: &Row) -> Vec<u32> {
        let mut processes: Vec<u32> = row.processes().collect();
        if processes.is_empty() {
            processes.extend(self.strata.keys().map(|stratum| stratum.process));
            processes.dedup();
        }
        processes
    }

    /// The most bytes (or objects, if these are more) that go unseen per unit of hazard, in any
    /// size class with allocations. It applies to a sum without a sample whose classes are unknown.
    pub fn most_unseen(&self, is_held: bool) -> f64 {
        let quantity = Quantity::new(true, is_held);
        let each = self.strata.iter().map(|(stratum, totals)| match self.epochs_of(stratum) {
            _ if totals.exact.is_some_and(|(_, objects)| objects == 0) => 0.0,
            [] => totals.unseen_bytes.max(totals.unseen_objects),
            epochs => {
                let some = epochs.iter().filter(|epoch| epoch.objects > 0);
                let unseen = some.map(|epoch| quantity.unseen(epoch));
                unseen.map(|of| of.bytes.max(of.objects)).fold(0.0, f64::max)
            }
        });
        // If nothing was allocated yet, only the interval is known.
        each.reduce(f64::max).unwrap_or(self.interval_bytes)
    }

    /// Capacity for what `row` may have in size classes of which it has no sample.
    pub(super) fn capacity(
        &self,
        row: &Row,
        quantity: Quantity,
        confidence: Confidence,
    ) -> UnseenCapacity {
        let mut capacity = UnseenCapacity::default();
        let processes = self.processes_of(row);
        let mut all_known = !processes.is_empty();
        for process in processes {
            let mut known = false;
            for (stratum, totals) in self.strata_of(process) {
                known |= totals.exact.or(totals.upper_totals).is_some();
                let own = row.get(stratum);
                let epochs = self.epochs_of(&stratum);
                if !epochs.is_empty() {
                    add_capacity(&mut capacity, (totals, epochs), own, quantity, confidence);
                } else if own.is_none_or(|own| quantity.of(own).samples == 0) {
                    let (per_hazard, most) = totals.unseen(own, quantity, confidence);
                    capacity.add(per_hazard, most);
                }
            }
            all_known &= known;
        }
        // Classes of which no sample has come yet; at an interval of 1 there are none.
        if !all_known && self.interval_bytes > 1.0 {
            capacity.add(self.interval_bytes, f64::INFINITY);
        }
        capacity
    }
}

impl StratumTotals {
    /// What a row without a sample may have in this stratum: most per unit of hazard, and most
    /// altogether. `own` is the row's part of the stratum's other quantities.
    fn unseen(
        &self,
        own: Option<&RowMoments>,
        quantity: Quantity,
        confidence: Confidence,
    ) -> (f64, f64) {
        if self.unseen_objects * confidence.budget() < 1.0 {
            return (0.0, 0.0); // not even one object
        }
        (quantity.pick(self.unseen_bytes, self.unseen_objects), self.left(own, quantity))
    }

    /// The most that a row may have besides its own samples: the exact total without what belongs
    /// to other rows; infinite if it is not known.
    pub(super) fn left(&self, own: Option<&RowMoments>, quantity: Quantity) -> f64 {
        let Some((bytes, objects)) = self.exact.or(self.upper_totals) else { return f64::INFINITY };
        let allocated = quantity.allocated();
        let of_row = own.map_or(0.0, |own| allocated.of(own).own);
        let of_others = allocated.of(&self.sampled).own - of_row;
        let seen = own.map_or(0.0, |own| quantity.of(own).own);
        (quantity.pick(bytes, objects) as f64 - of_others.max(0.0) - seen).max(0.0)
    }
}
