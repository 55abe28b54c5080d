//! How the moments of two sides become a difference: the same for a stack, for a sum of stacks and
//! for everything.

use super::{CannotCompare, FALSE_DISCOVERY_RATE, MIN_SAMPLES, Question, Relation};
use super::{grown, joined, relation};
use crate::estimate::{Confidence, Difference, Moments, Side, benjamini_hochberg, difference};
use crate::profile::Kind;

/// The parameters of a comparison of two profiles.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    pub(super) relation: Relation,
    confidence: Confidence,
    /// Mean bytes between samples of each side.
    intervals: [f64; 2],
    /// Most that goes unseen on each side, per unit of hazard.
    unseen: [f64; 2],
    /// Factor on the numbers of each side.
    scales: [f64; 2],
}

impl Judge {
    /// The parameters for the two profiles of a question.
    pub(super) fn new(question: &Question<'_>) -> Result<Judge, CannotCompare> {
        let Question { a, b, confidence, per_second, .. } = *question;
        for (name, profile) in [(question.a_name, a), (question.b_name, b)] {
            if !profile.reference.clusters.is_empty() {
                return Err(CannotCompare::Windows(name.to_owned()));
            }
        }
        let relation = relation::of(question)?;
        let scales = [a, b].map(|profile| {
            let [start, end] = relation::span(profile);
            if per_second { 1e9 / end.saturating_sub(start) as f64 } else { 1.0 }
        });
        let is_held = a.kind != Kind::Alloc;
        let intervals = [a, b].map(|profile| profile.reference.interval_bytes);
        let unseen = [a, b].map(|profile| profile.reference.most_unseen(is_held));
        Ok(Judge { relation, confidence, intervals, unseen, scales })
    }

    /// The difference of summed moments, with its own interval.
    pub fn difference(&self, pair: &[Moments; 2]) -> Difference {
        let [a, b] = [0, 1].map(|index| Side {
            moments: pair[index],
            interval_bytes: self.intervals[index],
            unseen: self.unseen[index],
            scale: self.scales[index],
        });
        match self.relation {
            Relation::Grown => grown(&a, &b, self.confidence),
            Relation::Independent | Relation::Shared => difference(&a, &b, self.confidence),
        }
    }

    /// The estimates of the two sides.
    pub fn values(&self, pair: &[Moments; 2]) -> [f64; 2] {
        [0, 1].map(|index| pair[index].sum * self.scales[index])
    }

    /// Whether sums are tested. They are not if one side is the beginning of the other: a sample in
    /// between then proves an allocation.
    pub fn tests(&self) -> bool {
        self.relation != Relation::Grown
    }

    /// Which of these sums have changed by more than chance, with p adjusted for all of them. Sums
    /// with fewer than [`MIN_SAMPLES`] on both sides have not changed. If nothing is
    /// [tested](Judge::tests), sums with a sample in between have changed.
    ///
    /// Sums over stacks that overlap are positively dependent: a frame has what its callees have.
    /// Benjamini and Hochberg's procedure still bounds the share of false discoveries then (Y.
    /// Benjamini and D. Yekutieli, "The control of the false discovery rate in multiple testing
    /// under dependency", Annals of Statistics 29 (2001), theorem 1.2).
    pub fn changed(&self, sums: &[([Moments; 2], Difference)]) -> Vec<bool> {
        let enough = |pair: &[Moments; 2]| pair.iter().any(|side| side.samples >= MIN_SAMPLES);
        if !self.tests() {
            return sums.iter().map(|(_, difference)| difference.value > 0.0).collect();
        }
        let tested: Vec<usize> = (0..sums.len()).filter(|index| enough(&sums[*index].0)).collect();
        let p: Vec<f64> = tested.iter().map(|index| sums[*index].1.p).collect();
        let mut changed = vec![false; sums.len()];
        for (index, adjusted) in tested.into_iter().zip(benjamini_hochberg(&p)) {
            changed[index] = adjusted <= FALSE_DISCOVERY_RATE;
        }
        changed
    }
}

/// Stacks of both sides by their functions (root first), with the moments of their bytes. Sums are
/// computed from these stacks.
pub struct Rows {
    /// Computes the differences of sums.
    pub judge: Judge,
    /// Stacks with samples on at least one side.
    pub stacks: Vec<(Vec<String>, [Moments; 2])>,
}

/// The rows that [`super::compare`] compares.
///
/// # Errors
/// The same as of [`super::compare`].
pub fn rows(question: &Question<'_>) -> Result<Rows, CannotCompare> {
    let judge = Judge::new(question)?;
    let stacks = joined(question.a, question.b).into_iter();
    let stacks = stacks.filter(|(_, [space, _])| space.iter().any(|side| side.samples > 0));
    let stacks =
        stacks.map(|(frames, [space, _])| (frames.into_iter().map(str::to_owned).collect(), space));
    Ok(Rows { judge, stacks: stacks.collect() })
}
