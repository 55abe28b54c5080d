//! What was allocated while a rate held, where rates have changed: the room that a row has in each of these times.
//!
//! Plainly: a program is sampled at every 64 KiB for a while and at every 16 MiB afterwards. A stack with a hundred samples of the first time
//! has an estimate that looks sharp; yet it may have allocated 40 MiB in the second without a sample. How much it can be is known: exact
//! totals are counted all the time, so that what *anybody* allocated while a rate held is exact.
//!
//! # The room
//!
//! An epoch is all the time in which one rate held in a stratum (or several within an octave; it need not be in one piece). With u_e
//! the most that goes unseen per unit of hazard in epoch e, T_e what was allocated in it, O what all rows' samples in the stratum own, o
//! the row's, and r the rarest rate of the row's own samples there (0 without one), the stratum has a piece of room
//!
//! ```text
//! (u_e, m_e)   for every e with u_e > r, by falling u_e     m_e = min(T_e, T − (O − o) − Σ m of those before)
//! ```
//!
//! in the fractional knapsack of the module `room`: u_e per unit of hazard, m_e at most. Nothing beyond what was allocated at a rate can have
//! passed at that rate, nor beyond what is left of the stratum's total T. Epochs with u_e ≤ r need none: the interval already
//! has one more event of the row's largest weight, and what such a rate lets pass weighs less. That largest weight is Fay and Feuer's
//! w_m, which they take over all weights that *could* have been observed (see [`mod@super::weighted`]): a rate of which the row has no
//! sample is one.
//!
//! One rate, one epoch: a row with a sample in the stratum has r = u and no piece, one without has the piece (u, T − (O − o)): the
//! same as where epochs are not distinguished.
//!
//! # What is held
//!
//! Samples that are held may be thinned out afterwards: what was allocated at a short interval is then held by samples of a long
//! one. So an epoch has two u: at which it was sampled, and at which its samples were kept.

use super::Reference;
use super::quantity::Quantity;
use super::room::Room;
use super::{Confidence, Moments, Row, RowMoments, Stratum, StratumTotals};

/// Rates that are this close are one.
const SAME_RATE_RATIO: f64 = 1.0 + 1e-9;

/// Most of a size class that goes unseen per unit of hazard ([`crate::sampling::Design::unseen`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unseen {
    /// Objects.
    pub objects: f64,
    /// Bytes.
    pub bytes: f64,
}

impl Unseen {
    /// The larger of both, each.
    pub fn max(self, other: Unseen) -> Unseen {
        Unseen { objects: self.objects.max(other.objects), bytes: self.bytes.max(other.bytes) }
    }
}

impl From<(f64, f64)> for Unseen {
    fn from((objects, bytes): (f64, f64)) -> Unseen {
        Unseen { objects, bytes }
    }
}

/// What was allocated in a stratum while one rate held, or several alike.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// Bytes allocated, exactly.
    pub bytes: u64,
    /// Objects allocated, exactly.
    pub objects: u64,
    /// What of it goes unseen among samples of allocations.
    pub alloc: Unseen,
    /// What of it goes unseen among samples that are held.
    pub inuse: Unseen,
}

impl Epoch {
    /// Whether all of it may have passed a row whose rarest sample is of the rate `rarest`.
    fn passes(&self, quantity: Quantity, rarest: f64) -> bool {
        quantity.unseen(self).objects > rarest * SAME_RATE_RATIO
    }
}

impl Reference {
    /// The epochs of a stratum; none where its rate never changed.
    pub fn epochs_of(&self, stratum: &Stratum) -> &[Epoch] {
        self.epochs.get(stratum).map_or(&[], Vec::as_slice)
    }

    /// Samples to be expected of the objects of a stratum, at least.
    pub(super) fn expected(&self, stratum: &Stratum, totals: &StratumTotals) -> f64 {
        // Where none goes unseen, any number is.
        let samples = |objects: u64, unseen: f64| match unseen {
            0.0 => f64::INFINITY,
            unseen => objects as f64 / unseen,
        };
        match self.epochs_of(stratum) {
            [] => samples(totals.exact.unwrap_or_default().1, totals.unseen_objects),
            epochs => {
                let some = epochs.iter().filter(|epoch| epoch.objects > 0);
                some.map(|epoch| samples(epoch.objects, epoch.alloc.objects)).sum()
            }
        }
    }

    /// Whether the rate of a process of `row` has changed in a size class in which it allocates.
    pub(super) fn has_changed(&self, row: &Row) -> bool {
        let changed = |epochs: &[Epoch]| epochs.iter().filter(|of| of.objects > 0).count() > 1;
        let in_process = |process| {
            self.epochs.range(Stratum::all_of(process)).any(|(_, epochs)| changed(epochs))
        };
        !self.epochs.is_empty() && self.processes_of(row).into_iter().any(in_process)
    }
}

impl Reference {
    /// `moments` of a row, its bytes or objects, allocated or held, of which the largest sample is as large as the next one can be at any
    /// rate of which the row has none, in the size classes that it has samples of: where intervals are made of moments alone (differences),
    /// that is what goes unseen.
    ///
    /// Mean w(1 − π) and variance w²(1 − π) of the next one are those of K(E).
    pub fn with_next(
        &self,
        row: &Row,
        moments: &Moments,
        is_bytes: bool,
        is_held: bool,
    ) -> Moments {
        let quantity = Quantity::new(is_bytes, is_held);
        let mut moments = *moments;
        if moments.samples == 0 || moments.variance == f64::INFINITY || !self.has_changed(row) {
            return moments;
        }
        let room = self.room_at_other_rates(row, quantity);
        let slot = room.slot(moments.largest, moments.largest_inclusion);
        if slot.mean > moments.largest && slot.variance.is_finite() {
            let share = slot.mean * (slot.mean / slot.variance);
            moments.largest = slot.mean;
            // Not 0, which marks points.
            moments.largest_inclusion = (1.0 - share).max(f64::EPSILON);
        }
        moments
    }

    /// Bytes that a next event of a row may stand for, at any rate of which the row has no sample, as one event of a Poisson process whose mean and
    /// variance are no less than those of K(E); 0 where rates have not changed.
    pub fn next_event(&self, row: &Row, is_held: bool) -> f64 {
        if !self.has_changed(row) {
            return 0.0;
        }
        let room = self.room_at_other_rates(row, Quantity::new(true, is_held));
        let slot = room.slot(0.0, 1.0);
        if slot.mean > 0.0 { slot.mean.max(slot.variance / slot.mean) } else { 0.0 }
    }

    /// What a row may have at rates of which it has no sample, in the size classes that it has samples of.
    fn room_at_other_rates(&self, row: &Row, quantity: Quantity) -> Room {
        let mut room = Room::default();
        for (stratum, own) in row.strata().filter(|(_, own)| quantity.of(own).samples > 0) {
            if let Some(totals) = self.strata.get(&stratum) {
                let of_all = (totals, self.epochs_of(&stratum));
                add_room(&mut room, of_all, Some(own), quantity, Confidence::DEFAULT);
            }
        }
        room
    }
}

/// Adds to `room` what a row may have in the epochs of which it has no sample. `own` is what the row has of the stratum.
pub(super) fn add_room(
    room: &mut Room,
    (totals, epochs): (&StratumTotals, &[Epoch]),
    own: Option<&RowMoments>,
    quantity: Quantity,
    confidence: Confidence,
) {
    let rarest =
        own.filter(|own| quantity.of(own).samples > 0).map_or(-1.0, |own| quantity.rarest(own));
    let budget = confidence.budget();
    let mut unseen: Vec<&Epoch> = epochs
        .iter()
        .filter(|epoch| epoch.passes(quantity, rarest))
        .filter(|epoch| quantity.unseen(epoch).objects * budget >= 1.0) // else not even one object
        .collect();
    let per_hazard = |epoch: &Epoch| {
        let unseen = quantity.unseen(epoch);
        quantity.pick(unseen.bytes, unseen.objects)
    };
    unseen.sort_by(|a, b| per_hazard(b).total_cmp(&per_hazard(a)));
    let mut left = totals.left(own, quantity);
    for epoch in unseen {
        let most = match totals.exact {
            Some(_) => (quantity.pick(epoch.bytes, epoch.objects) as f64).min(left),
            None => f64::INFINITY,
        };
        room.add(per_hazard(epoch), most);
        left -= most;
    }
}

#[cfg(test)]
mod tests;
