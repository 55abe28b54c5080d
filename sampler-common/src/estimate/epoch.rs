//! Epochs: the times at one rate, if rates have changed. The module computes how much a row may
//! have allocated unseen in each of them, its capacity.
//!
//! Plainly: a program is sampled every 64 KiB for a while and every 16 MiB afterwards. A stack with
//! a hundred samples from the first time has an estimate with a narrow interval. Yet the stack may
//! have allocated 40 MiB in the second time without a sample. The possible amount is bounded,
//! because exact totals are always counted: all allocations at each rate are known exactly.
//!
//! # The capacity
//!
//! An epoch is all the time in which one rate was active in a stratum (or several rates within an
//! octave). It need not be in one piece. Let u_e be the most that goes unseen per unit of hazard in
//! epoch e, and T_e what was allocated in it. Let O be the own bytes (or objects) of all rows'
//! samples in the stratum, and o those of the row's samples. Let r be the largest u of the row's
//! own samples there (0 without a sample). Then the stratum has a piece of capacity
//!
//! ```text
//! (u_e, m_e)   for every e with u_e > r, by falling u_e     m_e = min(T_e, T − (O − o) − Σ m of those before)
//! ```
//!
//! in the fractional knapsack of the module `unseen_capacity`: u_e per unit of hazard, m_e at most.
//! No more can have passed at a rate than was allocated at that rate, nor more than is left of the
//! stratum's total T.
//!
//! Epochs with u_e ≤ r need no capacity. The interval already has one more event of the row's
//! largest weight, and an allocation missed at such a rate weighs less. That largest weight is Fay
//! and Feuer's w_m, which they take over all weights that *could* have been observed (see
//! [`mod@super::weighted`]). A rate without a sample of the row is one of these.
//!
//! With one rate there is one epoch. A row with a sample in the stratum has r = u and no piece. A
//! row without one has the piece (u, T − (O − o)), the same as if epochs were not distinguished.
//!
//! # What is held
//!
//! Held samples may be thinned out afterwards: allocations at a short interval are then represented
//! by samples of a long interval. So an epoch has two u: one of its sampling rate, and one of the
//! rate at which its samples were kept.

use super::Reference;
use super::quantity::Quantity;
use super::unseen_capacity::UnseenCapacity;
use super::{Confidence, Moments, Row, RowMoments, Stratum, StratumTotals};

/// Rates within this ratio count as the same.
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
    /// The larger objects and the larger bytes of both.
    pub fn max(self, other: Unseen) -> Unseen {
        Unseen { objects: self.objects.max(other.objects), bytes: self.bytes.max(other.bytes) }
    }
}

impl From<(f64, f64)> for Unseen {
    fn from((objects, bytes): (f64, f64)) -> Unseen {
        Unseen { objects, bytes }
    }
}

/// Allocations in a stratum while one rate, or several similar rates, were active.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// Bytes allocated, exactly.
    pub bytes: u64,
    /// Objects allocated, exactly.
    pub objects: u64,
    /// What goes unseen of allocated quantities.
    pub alloc: Unseen,
    /// What goes unseen of held quantities.
    pub inuse: Unseen,
}

impl Epoch {
    /// Whether a row with `max_unseen` may have allocated everything in the epoch without a further
    /// sample.
    fn passes(&self, quantity: Quantity, max_unseen: f64) -> bool {
        quantity.unseen(self).objects > max_unseen * SAME_RATE_RATIO
    }
}

impl Reference {
    /// The epochs of a stratum; empty if its rate never changed.
    pub fn epochs_of(&self, stratum: &Stratum) -> &[Epoch] {
        self.epochs.get(stratum).map_or(&[], Vec::as_slice)
    }

    /// Lower bound of the expected number of samples of a stratum's objects.
    pub(super) fn expected(&self, stratum: &Stratum, totals: &StratumTotals) -> f64 {
        // If no object goes unseen, infinitely many are expected.
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

    /// Whether the rate of a process of `row` has changed in a size class that has allocations.
    pub(super) fn has_changed(&self, row: &Row) -> bool {
        let changed = |epochs: &[Epoch]| epochs.iter().filter(|of| of.objects > 0).count() > 1;
        let in_process = |process| {
            self.epochs.range(Stratum::all_of(process)).any(|(_, epochs)| changed(epochs))
        };
        !self.epochs.is_empty() && self.processes_of(row).into_iter().any(in_process)
    }
}

impl Reference {
    /// `moments` of a row with the largest sample replaced by the largest next sample at any rate
    /// of which the row has none.
    ///
    /// `moments` are bytes or objects, allocated or held. Only the size classes count that the row
    /// has samples of. Differences make intervals from moments alone: for them the replacement
    /// covers what goes unseen. Mean w(1 − π) and variance w²(1 − π) of the next sample are those
    /// of K(E).
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
        let capacity = self.capacity_at_other_rates(row, quantity);
        let event = capacity.next_event(moments.largest, moments.largest_inclusion);
        if event.mean > moments.largest && event.variance.is_finite() {
            let share = event.mean * (event.mean / event.variance);
            moments.largest = event.mean;
            // Not 0, which would mean points.
            moments.largest_inclusion = (1.0 - share).max(f64::EPSILON);
        }
        moments
    }

    /// Bytes that a next event of a row may stand for, at any rate of which the row has no sample;
    /// 0 if rates have not changed.
    ///
    /// The event is one of a Poisson process whose mean and variance are no less than those of
    /// K(E).
    pub fn next_event(&self, row: &Row, is_held: bool) -> f64 {
        if !self.has_changed(row) {
            return 0.0;
        }
        let capacity = self.capacity_at_other_rates(row, Quantity::new(true, is_held));
        let event = capacity.next_event(0.0, 1.0);
        if event.mean > 0.0 { event.mean.max(event.variance / event.mean) } else { 0.0 }
    }

    /// Capacity of a row at rates of which it has no sample, in the size classes of its samples.
    fn capacity_at_other_rates(&self, row: &Row, quantity: Quantity) -> UnseenCapacity {
        let mut capacity = UnseenCapacity::default();
        for (stratum, own) in row.strata().filter(|(_, own)| quantity.of(own).samples > 0) {
            if let Some(totals) = self.strata.get(&stratum) {
                let of_all = (totals, self.epochs_of(&stratum));
                add_capacity(&mut capacity, of_all, Some(own), quantity, Confidence::DEFAULT);
            }
        }
        capacity
    }
}

/// Adds to `capacity` what a row may have in epochs of which it has no sample. `own` is the row's
/// part of the stratum.
pub(super) fn add_capacity(
    capacity: &mut UnseenCapacity,
    (totals, epochs): (&StratumTotals, &[Epoch]),
    own: Option<&RowMoments>,
    quantity: Quantity,
    confidence: Confidence,
) {
    let max_unseen =
        own.filter(|own| quantity.of(own).samples > 0).map_or(-1.0, |own| quantity.max_unseen(own));
    let budget = confidence.budget();
    let mut unseen: Vec<&Epoch> = epochs
        .iter()
        .filter(|epoch| epoch.passes(quantity, max_unseen))
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
        capacity.add(per_hazard(epoch), most);
        left -= most;
    }
}

#[cfg(test)]
mod tests;
