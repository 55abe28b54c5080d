//! Rows in strata: separate moments for each process and size class.
//!
//! Objects of mixed sizes need separate classes, and so do totals that are known exactly per size
//! class. So a row is a sum over strata until the very end. Rows add; intervals are computed last.

use super::{Clusters, Epoch, RowMoments};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A process and a size class in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stratum {
    /// The process: an index assigned by the maker of the profile, not a pid.
    pub process: u32,
    /// The size class, see [`crate::sampling::class()`].
    pub class: u8,
}

impl Stratum {
    /// All strata that a process can have.
    pub(super) fn all_of(process: u32) -> RangeInclusive<Stratum> {
        Stratum { process, class: 0 }..=Stratum { process, class: u8::MAX }
    }
}

/// A stack, a function, a process, a total: moments by stratum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Sorted by stratum, each stratum once.
    strata: Vec<(Stratum, RowMoments)>,
    /// Whether the row is everything in a profile, with or without samples.
    whole: bool,
    /// Bytes and objects in groups of windows ([`super::clusters`]), by process and group. Sorted,
    /// each group once.
    clusters: Vec<((u32, u16), [f64; 2])>,
}

impl Row {
    /// The moments of a stratum, inserted if absent.
    pub fn stratum(&mut self, stratum: Stratum) -> &mut RowMoments {
        self.whole = false;
        let at = match self.strata.binary_search_by_key(&stratum, |(of, _)| *of) {
            Ok(at) => at,
            Err(at) => {
                // Most stacks have one stratum. There are many stacks.
                if self.strata.is_empty() {
                    self.strata.reserve_exact(1);
                }
                self.strata.insert(at, (stratum, RowMoments::default()));
                at
            }
        };
        &mut self.strata[at].1
    }

    /// Adds a disjoint row.
    pub fn add(&mut self, other: &Row) {
        for (stratum, moments) in &other.strata {
            self.stratum(*stratum).add(moments);
        }
        for ((process, group), sums) in &other.clusters {
            self.add_cluster(*process, *group, *sums);
        }
    }

    /// Adds bytes and objects to a group of windows of a process.
    pub fn add_cluster(&mut self, process: u32, group: u16, sums: [f64; 2]) {
        match self.clusters.binary_search_by_key(&(process, group), |(of, _)| *of) {
            Ok(at) => self.clusters[at].1.iter_mut().zip(sums).for_each(|(to, from)| *to += from),
            Err(at) => self.clusters.insert(at, ((process, group), sums)),
        }
    }

    /// The sums of the row in groups of windows of a process: bytes and objects by group.
    pub fn clusters_of(&self, process: u32) -> impl Iterator<Item = (u16, &[f64; 2])> {
        let of_process = self.clusters.iter().filter(move |((of, _), _)| *of == process);
        of_process.map(|((_, group), sums)| (*group, sums))
    }

    /// The sums of the row in groups of windows: process, group, bytes and objects.
    pub fn clusters(&self) -> impl Iterator<Item = (u32, u16, [f64; 2])> {
        self.clusters.iter().map(|((process, group), sums)| (*process, *group, *sums))
    }

    /// Adds rows without samples ([`super::unsampled`]), which complete a row of everything.
    pub(super) fn complete(mut self, other: &Row) -> Row {
        let whole = self.whole;
        self.add(other);
        self.whole = whole;
        self
    }

    /// Whether the row is everything in a profile ([`Reference::row`]). A stack, or a sum of
    /// stacks, that happens to have all samples is not everything: other stacks may have gone
    /// unseen.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The strata in order, with their moments.
    pub fn strata(&self) -> impl Iterator<Item = (Stratum, &RowMoments)> {
        self.strata.iter().map(|(stratum, moments)| (*stratum, moments))
    }

    /// Whether the row has no stratum.
    pub fn is_empty(&self) -> bool {
        self.strata.is_empty()
    }

    /// The moments of a stratum; `None` if absent.
    pub fn get(&self, stratum: Stratum) -> Option<&RowMoments> {
        let at = self.strata.binary_search_by_key(&stratum, |(of, _)| *of).ok()?;
        Some(&self.strata[at].1)
    }

    /// The processes of the row in order, each once.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.strata.chunk_by(|(a, _), (b, _)| a.process == b.process).map(|of| of[0].0.process)
    }

    /// A row of the same strata without any sample.
    pub(super) fn blank(&self) -> Row {
        let strata = self.strata.iter().map(|(of, _)| (*of, RowMoments::default())).collect();
        Row { strata, whole: false, clusters: Vec::new() }
    }

    /// Forgets the rates of the samples in all strata for which `keeps` is false.
    pub fn forget_rates(&mut self, keeps: impl Fn(&Stratum) -> bool) {
        let forgets = self.strata.iter_mut().filter(|(stratum, _)| !keeps(stratum));
        forgets.for_each(|(_, moments)| moments.forget_rates());
    }

    /// The moments of all strata together.
    pub fn total(&self) -> RowMoments {
        let mut total = RowMoments::default();
        self.strata.iter().for_each(|(_, moments)| total.add(moments));
        total
    }
}

/// Totals of a stratum over all rows, and how much of it may go unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StratumTotals {
    /// Moments of every sample in the stratum, over all rows.
    pub sampled: RowMoments,
    /// Exact totals: bytes and objects that were allocated in the time of `sampled`, including what
    /// is still held.
    ///
    /// `None` if the totals are not known (for example, windows that do not start at a snapshot).
    pub exact: Option<(u64, u64)>,
    /// Upper ends of estimated totals, if exact totals are not known.
    pub upper_totals: Option<(u64, u64)>,
    /// Most objects that go unseen per unit of hazard, at any design that was active
    /// ([`crate::sampling::Design::unseen`]).
    pub unseen_objects: f64,
    /// Most bytes that go unseen per unit of hazard.
    pub unseen_bytes: f64,
}

/// Everything in a profile: the reference for the estimates of its rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    /// Every stratum with samples or exact totals.
    pub strata: BTreeMap<Stratum, StratumTotals>,
    /// Largest mean interval that was active, bytes.
    pub interval_bytes: f64,
    /// Windows by process, if allocations were seen in windows only; empty otherwise.
    pub clusters: BTreeMap<u32, Clusters>,
    /// Allocations at each rate, for the strata of processes whose rate has changed; other strata
    /// have none.
    pub epochs: BTreeMap<Stratum, Vec<Epoch>>,
    /// Whether frees were not seen, or allocations were seen in windows only. What is held is
    /// unknown then, and has no interval.
    pub held_unknown: bool,
    /// Whether some allocations are known to go unseen: exact totals are then lower bounds.
    pub allocations_unseen: bool,
}

impl Reference {
    /// Adds the samples of a row to the strata.
    pub fn add(&mut self, row: &Row) {
        for (stratum, moments) in row.strata() {
            self.strata.entry(stratum).or_default().sampled.add(moments);
        }
    }

    /// All rows of the profile together.
    pub fn row(&self) -> Row {
        // A stratum without samples is in no row.
        let sampled = self.strata.iter().filter(|(_, of)| of.sampled != RowMoments::default());
        let strata = sampled.map(|(stratum, of)| (*stratum, of.sampled)).collect();
        Row { strata, whole: true, clusters: Vec::new() }
    }

    /// Forgets the rates of samples in strata without epochs.
    pub fn forget_rates(&mut self) {
        for (stratum, totals) in &mut self.strata {
            if !self.epochs.contains_key(stratum) {
                totals.sampled.forget_rates();
            }
        }
    }

    /// The part of the reference that describes `processes`.
    pub fn of_processes(&self, processes: &[u32]) -> Reference {
        let each = processes.iter();
        let clusters = each.clone().filter_map(|of| Some((*of, self.clusters.get(of)?.clone())));
        let strata = each.clone().flat_map(|process| self.strata_of(*process));
        let epochs = each.flat_map(|process| self.epochs.range(Stratum::all_of(*process)));
        Reference {
            strata: strata.map(|(of, totals)| (of, *totals)).collect(),
            interval_bytes: self.interval_bytes,
            clusters: clusters.collect(),
            epochs: epochs.map(|(of, epochs)| (*of, epochs.clone())).collect(),
            held_unknown: self.held_unknown,
            allocations_unseen: self.allocations_unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Sample;
    use crate::sampling::Rate;

    fn row(process: u32, class: u8, size: u64) -> Row {
        let mut row = Row::default();
        let sample = Sample::geometric(size, Rate::ALWAYS);
        row.stratum(Stratum { process, class }).add_allocation(&sample);
        row
    }

    #[test]
    fn rows_add_by_stratum() {
        let mut sum = row(1, 3, 50);
        sum.add(&row(0, 7, 1000));
        sum.add(&row(1, 3, 60));
        let strata: Vec<_> = sum.strata().map(|(of, m)| (of, m.alloc_space.own)).collect();
        let of = |process, class| Stratum { process, class };
        assert_eq!(strata, [(of(0, 7), 1000.0), (of(1, 3), 110.0)]);
        assert_eq!(sum.total().alloc_space.own, 1110.0);
    }

    #[test]
    fn a_reference_is_the_sum_of_its_rows() {
        let rows = [row(1, 3, 50), row(0, 7, 1000), row(1, 3, 60)];
        let mut reference = Reference::default();
        let mut sum = Row::default();
        for row in &rows {
            reference.add(row);
            sum.add(row);
        }
        let empty = Stratum { process: 1, class: 9 };
        reference.strata.insert(empty, StratumTotals { exact: Some((8, 1)), ..Default::default() });
        assert!(reference.row().is_whole() && !sum.is_whole());
        assert!(reference.row().strata().eq(sum.strata()));
        let one = reference.of_processes(&[1]);
        assert_eq!(one.row().total().alloc_space.own, 110.0);
        assert!(one.strata.contains_key(&empty));
    }

    #[test]
    fn a_part_of_a_row_has_the_same_estimates() {
        let mut whole =
            Reference { held_unknown: true, allocations_unseen: true, ..Reference::default() };
        for process in 0..3 {
            whole.add(&row(process, 5, 100));
            whole.epochs.insert(Stratum { process, class: 5 }, vec![Epoch::default()]);
        }
        assert_eq!(whole.of_processes(&[0, 1, 2]), whole);
        let part = whole.of_processes(&[2, 0]);
        assert!(part.held_unknown && part.strata.keys().eq(part.epochs.keys()));
        assert_eq!(part.epochs.keys().map(|of| of.process).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(whole.of_processes(&[1]).epochs.len(), 1);
    }
}
