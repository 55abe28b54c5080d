//! Which size classes of a process are calibrated together.
//!
//! Plainly: the samples of a class show how the class is divided among rows. A class with few
//! samples joins a class of nearly the same size that has more. A class that has no sample by
//! chance is divided like the samples of its neighbours. If a class can hardly be seen at all, and
//! no class near it was seen, samples of other sizes say nothing about it. It then stays apart and
//! belongs to no row.
//!
//! # The rule
//!
//! Distances are in classes, each twice the size of the one before. For a class with N objects
//! exactly, of which at most u go unseen per unit of hazard, at least N/u samples are expected. If
//! the rate of the class has changed, this number is a sum over its epochs.
//!
//! ```text
//! sampled, fewer than 5 samples in its group   joins a neighbour at most 3 away; else it is a group by itself
//! no sample, one sampled at most 3 away        joins its neighbour
//! no sample, N/u ≥ ln 2                        joins its neighbour, however far
//! no sample, N/u < ln 2                        a group of its own, without a sample
//! ```
//!
//! Below ln 2 a class more often than not has no sample. This depends on the sampling rate and not
//! on which samples were drawn. So a class that is left out is left out in nearly any run.
//!
//! All classes of a group are divided among rows in the same proportion. That is right only if the
//! rows have similar shares of each class. A ratio is biased by about 1/n of a standard deviation
//! squared, hence the 5. There is no bias if the whole group has one size: each of n samples then
//! stands for T/n. A single class nearly has one size.

use super::Quantity;
use crate::estimate::{Reference, Row, RowMoments, Stratum};

/// A group with fewer samples joins a close group.
pub const MIN_SAMPLES: u64 = 5;

/// Largest distance across which sampled classes join: sizes within 8 times.
pub const MAX_CLASSES: u8 = 3;

/// A class without a sample and with fewer expected samples joins no class beyond that distance.
pub const MIN_EXPECTED: f64 = std::f64::consts::LN_2;

/// Size classes of a process that are calibrated together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Strata with their exact bytes and objects.
    pub(super) strata: Vec<(Stratum, (u64, u64))>,
    /// Moments over all rows.
    pub(super) sampled: RowMoments,
}

impl Group {
    fn add(&mut self, other: Group) {
        self.strata.extend(other.strata);
        self.sampled.add(&other.sampled);
    }

    fn is_small(&self) -> bool {
        self.sampled.alloc_objects.samples < MIN_SAMPLES
    }

    /// Whether `next`, of larger sizes, is close enough. A group without a sample may join at any
    /// distance: no other samples can stand for it.
    fn may_join(&self, next: &Group) -> bool {
        let is_empty = |group: &Group| group.sampled.alloc_objects.samples == 0;
        let edges = (self.strata.last(), next.strata.first());
        let (Some((last, _)), Some((first, _))) = edges else { return true };
        is_empty(self) || is_empty(next) || last.class.abs_diff(first.class) <= MAX_CLASSES
    }

    /// The moments of `row` in this group.
    pub(super) fn of(&self, row: &Row) -> RowMoments {
        let mut sum = RowMoments::default();
        self.strata.iter().filter_map(|(at, _)| row.get(*at)).for_each(|of| sum.add(of));
        sum
    }

    /// The exact total.
    pub(super) fn exact(&self, quantity: Quantity) -> f64 {
        self.strata.iter().map(|(_, (bytes, objects))| quantity.pick(*bytes, *objects) as f64).sum()
    }

    /// The exact total of the strata that are in `row` without a sample, as [`super::unsampled`]
    /// returns them.
    pub(super) fn exact_of_unsampled(&self, row: &Row, quantity: Quantity) -> f64 {
        let empty = |at: &Stratum| row.get(*at).is_some_and(|of| *of == RowMoments::default());
        let strata = self.strata.iter().filter(|(at, _)| empty(at));
        strata.map(|(_, (bytes, objects))| quantity.pick(*bytes, *objects) as f64).sum()
    }
}

/// The groups of a process; `None` if not all of its exact totals are known.
pub(super) fn groups(reference: &Reference, process: u32) -> Option<Vec<Group>> {
    let of_process = || reference.strata_of(process);
    let is_sampled = |of: &RowMoments| of.alloc_objects.samples > 0;
    let sampled = of_process().filter(|(_, totals)| is_sampled(&totals.sampled));
    let sampled: Vec<u8> = sampled.map(|(stratum, _)| stratum.class).collect();
    let (mut classes, mut unseen) = (Vec::new(), Vec::new());
    for (stratum, totals) in of_process() {
        let (bytes, objects) = totals.exact?;
        let class = Group { strata: vec![(stratum, (bytes, objects))], sampled: totals.sampled };
        let near = sampled.iter().any(|of| of.abs_diff(stratum.class) <= MAX_CLASSES);
        let visible = reference.expected(&stratum, totals) >= MIN_EXPECTED;
        if near || visible { classes.push(class) } else { unseen.push(class) }
    }
    // Upwards, small groups absorb the next one. Groups that are still small are then absorbed from
    // below.
    let mut groups = joined(classes, |last, _| last.is_small());
    groups = joined(groups, |_, next| next.is_small());
    groups.append(&mut unseen);
    if groups.is_empty() { None } else { Some(groups) }
}

/// The groups after each has joined the one before it, if that group `wants` it and may join it.
fn joined(groups: Vec<Group>, wants: impl Fn(&Group, &Group) -> bool) -> Vec<Group> {
    let mut joined: Vec<Group> = Vec::new();
    for group in groups {
        match joined.last_mut() {
            Some(last) if wants(last, &group) && last.may_join(&group) => last.add(group),
            _ => joined.push(group),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Sample, StratumTotals};
    use crate::sampling::Rate;

    /// Classes of the groups that (class, samples, expected samples) form.
    fn grouped(classes: &[(u8, u64, f64)]) -> Vec<Vec<u8>> {
        let mut reference = Reference::default();
        for (class, samples, expected) in classes {
            let unseen_objects = 1000.0 / expected;
            let exact = Some((1000, 1000));
            let mut totals = StratumTotals { exact, unseen_objects, ..Default::default() };
            (0..*samples).for_each(|_| {
                totals.sampled.add_allocation(&Sample::geometric(1, Rate::ALWAYS));
            });
            reference.strata.insert(Stratum { process: 0, class: *class }, totals);
        }
        let classes = |group: Group| group.strata.iter().map(|(of, _)| of.class).collect();
        groups(&reference, 0).unwrap_or_default().into_iter().map(classes).collect()
    }

    #[test]
    fn sampled_classes_join_near_classes_only() {
        assert_eq!(grouped(&[(1, 9, 9.0), (2, 2, 2.0), (5, 9, 9.0)]), [vec![1], vec![2, 5]]);
        assert_eq!(grouped(&[(1, 9, 9.0), (2, 2, 2.0), (6, 9, 9.0)]), [vec![1, 2], vec![6]]);
        assert_eq!(grouped(&[(1, 9, 9.0), (5, 2, 2.0), (9, 9, 9.0)]), [[1], [5], [9]]);
        assert_eq!(grouped(&[(4, 1, 1.0)]), [[4]]);
    }

    #[test]
    fn unsampled_classes_join_if_samples_were_likely() {
        assert_eq!(grouped(&[(1, 9, 9.0), (4, 0, 0.01), (5, 0, 0.01)]), [vec![1, 4], vec![5]]);
        assert_eq!(grouped(&[(1, 9, 9.0), (9, 0, 0.69)]), [[1], [9]]);
        assert_eq!(grouped(&[(1, 9, 9.0), (9, 0, 0.70)]), [[1, 9]]);
        assert_eq!(grouped(&[(1, 0, 1.0), (9, 9, 9.0)]), [[1, 9]]);
        assert_eq!(grouped(&[(1, 9, 9.0), (9, 0, 1.0), (16, 9, 9.0)]), [vec![1], vec![9, 16]]);
        assert_eq!(grouped(&[(1, 0, 0.1), (9, 0, 0.1)]), [[1], [9]]);
    }
}
