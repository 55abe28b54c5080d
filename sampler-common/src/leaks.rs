//! Stacks whose held bytes grow, ranked by the lower bound of their growth.
//!
//! Pure data, like [`crate::profile`], and the ranking. The bounds of all stacks hold at once: see
//! [`crate::estimate::turnover`].

use crate::estimate::turnover::{self, each_of};
use crate::estimate::{
    Confidence, Estimate, Estimator, Growth, Median, Reference, Row, Share, Step, Survival,
    Turnover, Weights, growth, of_row,
};
use crate::note::Note;
use crate::profile::Line;

/// Blocks that were freed in the period, in one slot of time.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// Nanoseconds from the beginning of the slot of their allocation to the end of the period.
    pub allocated_age_ns: u64,
    /// Nanoseconds from the beginning of the slot of their frees to the end of the period. It is a
    /// later slot.
    pub freed_age_ns: u64,
    /// The blocks.
    pub blocks: Turnover,
}

/// The times of a history, all of them borders of time slots.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Nanoseconds from each time to the end of the period, the oldest first.
    pub ages_ns: Vec<u64>,
    /// End of the period, nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
}

/// What the sampled blocks of a stack did in a period.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Blocks that arrived in the period and are held at its end.
    pub arrived: Turnover,
    /// Blocks that were held at the beginning of the period and ended in it.
    pub departed: Turnover,
    /// Blocks that were allocated in the period, freed or not; weighted by bytes.
    pub allocated: Weights,
    /// The stack's row in the profile of what is held at the end of the period.
    pub row: Row,
    /// Ages of the held blocks, nanoseconds, with the bytes that each block stands for.
    pub ages: Vec<(u64, f64)>,
    /// Blocks that were freed in the period, in a later slot than that of their allocation.
    pub freed: Vec<Freed>,
}

impl Blocks {
    /// Adds the blocks of another stack.
    pub fn add(&mut self, other: &Blocks) {
        self.arrived.add(&other.arrived);
        self.departed.add(&other.departed);
        self.allocated.add(&other.allocated);
        self.row.add(&other.row);
        self.ages.extend_from_slice(&other.ages);
        self.freed.extend_from_slice(&other.freed);
    }

    /// Raises the largest event of both sides: where rates have changed, the next event may have a
    /// rate without a sample.
    fn expect_next(&mut self, reference: &Reference) {
        let next = self.next_event(reference);
        // A side without samples has room for what the samples of the other side stand for.
        for side in [&mut self.arrived, &mut self.departed].into_iter().filter(|of| of.samples > 0)
        {
            side.largest = side.largest.max(next);
        }
    }

    /// The most that the next event may stand for.
    fn next_event(&self, reference: &Reference) -> f64 {
        let [held, allocated] = [true, false].map(|held| reference.next_event(&self.row, held));
        held.max(allocated)
    }

    /// What was held at each time, and at the end.
    fn history(
        &self,
        times: &Times,
        reference: &Reference,
        now: &Estimate,
        confidence: Confidence,
    ) -> Vec<Held> {
        let next = self.next_event(reference);
        let unseen_bytes = reference.most_unseen(true);
        let earlier = times.ages_ns.iter().map(|age_ns| {
            let mut blocks = self.held_at(*age_ns);
            if blocks.samples > 0 {
                blocks.largest = blocks.largest.max(next);
            }
            let of = turnover::held(&blocks, unseen_bytes, confidence);
            Held::new(times.end_unix_ns.saturating_sub(*age_ns), &of)
        });
        earlier.chain([Held::new(times.end_unix_ns, now)]).collect()
    }

    /// The blocks that were held at a border of time slots, `age_ns` before the end.
    fn held_at(&self, age_ns: u64) -> Turnover {
        let mut blocks = Turnover::default();
        let still = self.ages.iter().filter(|(age, _)| *age > age_ns);
        still.for_each(|(_, weight)| blocks.add_weight(*weight));
        let freed = self.freed.iter();
        let later = freed.filter(|of| of.allocated_age_ns > age_ns && of.freed_age_ns <= age_ns);
        later.for_each(|of| blocks.add(&of.blocks));
        blocks
    }

    /// The share of bytes allocated in the period that is held at its end; `None` if nothing was
    /// allocated.
    fn kept(&self, confidence: Confidence) -> Option<Share> {
        let Turnover { samples, sum, squares, .. } = self.arrived;
        if self.allocated.sum <= 0.0 {
            return None;
        }
        let held = Weights { samples, sum, squares };
        let gone = Weights {
            samples: self.allocated.samples.saturating_sub(samples),
            sum: (self.allocated.sum - sum).max(0.0),
            squares: (self.allocated.squares - squares).max(0.0),
        };
        // Two ages: gone at the first, alive at the second.
        let steps = [(1.0, gone, Weights::default()), (2.0, Weights::default(), held)];
        let steps = steps.map(|(age_ns, freed, censored)| Step { age_ns, freed, censored });
        Some(Survival::new(steps.to_vec()).beyond(1.0, confidence))
    }

    /// The age that half of the held bytes exceed.
    fn median_age(&self, confidence: Confidence) -> Median {
        let steps = self.ages.iter().map(|(age_ns, weight)| {
            let mut of = Weights::default();
            of.add_sample(*weight);
            Step { age_ns: *age_ns as f64, freed: of, censored: Weights::default() }
        });
        Survival::new(steps.collect()).median(confidence)
    }
}

/// The bytes held at one time, with the interval of this one number. `low ≤ value ≤ high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The time, nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Held {
    fn new(unix_ns: u64, of: &Estimate) -> Held {
        Held { unix_ns, value: of.value, low: of.low, high: of.high }
    }
}

/// A stack, or all stacks, and its growth.
#[derive(Clone, Debug, PartialEq)]
pub struct Grown {
    /// The growth. A stack's bounds hold for all stacks at once; the bounds of all stacks together
    /// hold by themselves.
    pub growth: Growth,
    /// Number of samples that arrived and stayed.
    pub arrived: u64,
    /// Number of samples that were there and departed.
    pub departed: u64,
    /// The bytes that are held.
    pub held: Estimate,
    /// The age that half of the held bytes exceed.
    pub age: Median,
    /// Age of the oldest sampled block, nanoseconds; 0 if nothing is held.
    pub oldest_ns: u64,
    /// The share of bytes allocated in the period that is held at its end; `None` if nothing was
    /// allocated.
    pub kept: Option<Share>,
    /// What was held at the beginning of the period, at some times in it, and at its end.
    pub history: Vec<Held>,
}

impl Grown {
    /// Makes the numbers of some blocks from their growth and the profile that `reference`
    /// describes.
    fn new(
        blocks: &Blocks,
        growth: Growth,
        reference: &Reference,
        times: &Times,
        confidence: Confidence,
    ) -> Grown {
        let held = of_row(&blocks.row, reference, Estimator::Weighted, confidence).inuse_space;
        Grown {
            growth,
            arrived: blocks.arrived.samples,
            departed: blocks.departed.samples,
            held,
            age: blocks.median_age(confidence),
            oldest_ns: blocks.ages.iter().map(|(age_ns, _)| *age_ns).max().unwrap_or(0),
            kept: blocks.kept(confidence),
            history: blocks.history(times, reference, &held, confidence),
        }
    }

    /// Whether the growth is more than chance.
    pub fn is_growing(&self) -> bool {
        self.growth.low > 0.0
    }
}

/// A stack of which a sample arrived or departed.
#[derive(Clone, Debug, PartialEq)]
pub struct Leak {
    /// Process that allocated.
    pub pid: u32,
    /// Functions, root first, inlined ones included.
    pub frames: Vec<Line>,
    /// The growth of the stack.
    pub grown: Grown,
}

/// The stacks of some processes, and the growth of each in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaks {
    /// Confidence of every interval, and of the bounds of all stacks together.
    pub confidence: Confidence,
    /// Beginning of the period, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End of the period, nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
    /// All stacks together, with an interval of its own.
    pub total: Grown,
    /// Number of stacks that have grown by more than chance.
    pub growing: u64,
    /// Upper bound of the growth of a stack without a sample that arrived or departed, bytes.
    pub unseen: f64,
    /// Upper bound of the growth of a stack that is not known to grow, bytes; at least `unseen`.
    pub max_other_growth: f64,
    /// Stacks by falling lower bound.
    pub stacks: Vec<Leak>,
    /// Number of stacks of which a sample arrived or departed, before the cut to the top stacks. As
    /// many bounds hold at once.
    pub stacks_total: u64,
    /// What limits the meaning of the numbers.
    pub notes: Vec<Note>,
}

impl Leaks {
    /// Length of the period, nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }
}

/// Stacks ranked by their growth.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Indices of the given stacks and their growth, by falling lower bound; at most as many as
    /// were asked for.
    pub ranked: Vec<(usize, Grown)>,
    /// All stacks together.
    pub total: Grown,
    /// See [`Leaks::growing`].
    pub growing: u64,
    /// See [`Leaks::unseen`].
    pub unseen: f64,
    /// See [`Leaks::max_other_growth`].
    pub max_other_growth: f64,
}

impl Ranking {
    /// Ranks stacks of which a sample arrived or departed; keeps `top` of them, 0 for all.
    ///
    /// `others` is the sum of the other stacks, which count only in the total. `reference`
    /// describes the profile of what is held. `times` are the times of the history.
    pub fn new(
        mut stacks: Vec<Blocks>,
        others: &Blocks,
        reference: &Reference,
        times: &Times,
        confidence: Confidence,
        top: usize,
    ) -> Ranking {
        let each = each_of(stacks.len(), confidence);
        let unseen_bytes = reference.most_unseen(true);
        stacks.iter_mut().for_each(|of| of.expect_next(reference));
        let growth_at =
            |of: &Blocks, bounds| growth(&of.departed, &of.arrived, unseen_bytes, bounds);
        let mut order: Vec<(usize, Growth)> =
            stacks.iter().map(|of| growth_at(of, each)).enumerate().collect();
        order.sort_by(|(i, a), (j, b)| {
            b.low.total_cmp(&a.low).then(b.value.total_cmp(&a.value)).then(i.cmp(j))
        });
        let growing = order.partition_point(|(_, of)| of.low > 0.0);
        let unseen = growth(&Turnover::default(), &Turnover::default(), unseen_bytes, each).high;
        let missed = order[growing..].iter().map(|(_, of)| of.high);
        let max_other_growth = missed.fold(unseen, f64::max);
        let mut total = others.clone();
        stacks.iter().for_each(|of| total.add(of));
        order.truncate(if top > 0 { top } else { order.len() });
        let of = |blocks: &Blocks, growth| Grown::new(blocks, growth, reference, times, confidence);
        let ranked = order.iter().map(|(index, growth)| (*index, of(&stacks[*index], *growth)));
        Ranking {
            ranked: ranked.collect(),
            total: of(&total, growth_at(&total, confidence)),
            growing: growing as u64,
            unseen,
            max_other_growth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Epoch, Sample, Stratum, StratumTotals, Unseen};
    use crate::sampling::Rate;

    /// A stack with this many samples that arrived, that departed, that arrived and departed, and
    /// that stayed throughout.
    fn blocks(arrived: u64, departed: u64, passed: u64, stayed: u64) -> Blocks {
        let sample = Sample::geometric(100, Rate::from_interval(100_000).unwrap());
        let mut of = Blocks::default();
        (0..arrived).for_each(|_| of.arrived.add_sample(&sample));
        (0..departed).for_each(|_| of.departed.add_sample(&sample));
        (0..arrived + passed).for_each(|_| of.allocated.add_sample(sample.bytes()));
        for index in 0..arrived + stayed {
            of.row.stratum(Stratum { process: 0, class: 4 }).add_live(&sample);
            of.ages.push((1_000_000_000 * (index + 1), sample.bytes()));
        }
        of
    }

    /// One in 1000 blocks of 100 bytes is sampled.
    fn reference() -> Reference {
        let totals = StratumTotals {
            unseen_objects: 1000.0,
            unseen_bytes: 100_000.0,
            ..StratumTotals::default()
        };
        let strata = [(Stratum { process: 0, class: 4 }, totals)].into();
        Reference { strata, interval_bytes: 100_000.0, ..Reference::default() }
    }

    fn ranking(stacks: &[Blocks], top: usize) -> Ranking {
        let (others, confidence) = (Blocks::default(), Confidence::DEFAULT);
        Ranking::new(stacks.to_vec(), &others, &reference(), &Times::default(), confidence, top)
    }

    #[test]
    fn significantly_growing_stacks_are_ranked_first() {
        let stacks = [
            blocks(300, 290, 4000, 100), // steady, and large
            blocks(40, 2, 0, 5),         // leaks
            blocks(6, 0, 900, 0),        // too few to tell
            blocks(0, 30, 0, 5),         // shrinks
            blocks(25, 0, 25, 0),        // leaks half
        ];
        let all = ranking(&stacks, 0);
        assert_eq!(all.growing, 2);
        let order: Vec<usize> = all.ranked.iter().map(|(index, _)| *index).collect();
        assert_eq!(order[..2], [1, 4]);
        assert_eq!(*order.last().unwrap(), 0, "the widest interval reaches lowest");
        let (_, leak) = &all.ranked[0];
        assert!((leak.growth.value / 38.0 - 100_050.0).abs() < 1.0, "{leak:?}");
        assert!(leak.is_growing() && leak.growth.low > 1e6 && leak.growth.high < 8e6, "{leak:?}");
        assert_eq!((leak.arrived, leak.departed, leak.held.samples), (40, 2, 45));
        assert_eq!((leak.oldest_ns, leak.age.value), (45_000_000_000, Some(23e9)));
        assert_eq!(leak.kept.unwrap().value, 1.0);
        assert!((all.ranked[1].1.kept.unwrap().value - 0.5).abs() < 1e-9);
        // The total is a sum of what arrived and departed, not of the stacks' numbers.
        assert_eq!((all.total.arrived, all.total.departed), (371, 322));
        assert!(ranking(&stacks, 2).ranked.iter().map(|(index, _)| *index).eq([1, 4]));
        assert_eq!(ranking(&stacks, 2).growing, 2);
    }

    /// The history ends with what is held, and its first number is that less the growth.
    #[test]
    fn the_history_leads_from_the_start_to_what_is_held() {
        let sample = Sample::geometric(100, Rate::from_interval(100_000).unwrap());
        let mut stack = blocks(0, 0, 0, 0);
        // In a period of 10 s: held all along, allocated after 5 s, held and freed after 7 s,
        // allocated after 2 s and freed after 4 s.
        for age_s in [20, 5] {
            stack.ages.push((age_s * 1_000_000_000, sample.bytes()));
            stack.row.stratum(Stratum { process: 0, class: 4 }).add_live(&sample);
        }
        stack.arrived.add_sample(&sample);
        stack.departed.add_sample(&sample);
        for ages_s in [[12, 3], [8, 6]] {
            let [allocated_age_ns, freed_age_ns] = ages_s.map(|age_s| age_s * 1_000_000_000);
            let mut blocks = Turnover::default();
            blocks.add_sample(&sample);
            stack.freed.push(Freed { allocated_age_ns, freed_age_ns, blocks });
        }
        let ages_ns = [10, 7, 5, 4, 1].map(|age_s| age_s * 1_000_000_000).to_vec();
        let times = Times { ages_ns, end_unix_ns: 60_000_000_000 };
        let (others, confidence) = (Blocks::default(), Confidence::DEFAULT);
        let of = Ranking::new(vec![stack], &others, &reference(), &times, confidence, 0);
        let (_, grown) = &of.ranked[0];
        let number = |of: &Held| (of.unix_ns / 1_000_000_000, (of.value / sample.bytes()).round());
        let numbers: Vec<_> = grown.history.iter().map(number).collect();
        let expected = [(50, 2.0), (53, 3.0), (55, 2.0), (56, 3.0), (59, 2.0), (60, 2.0)];
        assert_eq!(numbers, expected);
        let [first, last] = [&grown.history[0], &grown.history[5]];
        assert_eq!(last.value, grown.held.value);
        assert!((last.value - first.value - grown.growth.value).abs() < 1e-6, "{grown:?}");
        assert!(grown.history.iter().all(|of| of.low <= of.value && of.value <= of.high));
        assert!(first.high >= last.high && first.low <= last.low, "{first:?} {last:?}");
    }

    #[test]
    fn without_growth_the_largest_missable_growth_is_given() {
        let of = ranking(&[blocks(100, 104, 50, 10), blocks(3, 4, 0, 0)], 0);
        assert_eq!(of.growing, 0);
        assert!(of.max_other_growth > 2e6 && of.max_other_growth < 6e6, "{of:?}");
        let none = ranking(&[], 0);
        assert_eq!((none.growing, none.total.growth.value), (0, 0.0));
        assert_eq!(none.max_other_growth, none.unseen);
        assert!(none.total.kept.is_none() && none.total.age.value.is_none());
    }

    /// A process that samples by itself has an interval of its own, and other strategies miss more
    /// in large classes.
    #[test]
    fn unseen_growth_is_the_largest_of_all_classes() {
        let mut reference = reference();
        reference.interval_bytes = 1.0;
        let unseen = |reference: &Reference| {
            let (others, confidence) = (Blocks::default(), Confidence::DEFAULT);
            Ranking::new(vec![], &others, reference, &Times::default(), confidence, 0).unseen
        };
        let one = unseen(&reference);
        assert!((one / (100_000.0 * 40f64.ln()) - 1.0).abs() < 1e-9, "{one}");
        let totals = StratumTotals {
            exact: Some((64 << 20, 64)),
            unseen_objects: 8192.0,
            unseen_bytes: 8e9,
            ..StratumTotals::default()
        };
        reference.strata.insert(Stratum { process: 0, class: 17 }, totals);
        assert!((unseen(&reference) / one - 80_000.0).abs() < 1.0);
        // A class in which nothing was allocated does not count.
        let totals = StratumTotals { exact: Some((0, 0)), ..totals };
        reference.strata.insert(Stratum { process: 0, class: 17 }, totals);
        assert_eq!(unseen(&reference), one);
    }

    /// Twenty samples at a short interval, none at the long one that followed: growth at the long
    /// interval may have been missed.
    #[test]
    fn bounds_cover_epochs_without_samples() {
        let stack = || vec![blocks(20, 0, 0, 0)];
        let (mut reference, others) = (reference(), Blocks::default());
        let grown = |reference: &Reference| {
            let (times, confidence) = (Times::default(), Confidence::DEFAULT);
            let ranking = Ranking::new(stack(), &others, reference, &times, confidence, 0);
            let (_, grown) = &ranking.ranked[0];
            (grown.growth.high, grown.held.high)
        };
        let one = grown(&reference);
        let epoch = |factor: f64| {
            let of = Unseen { objects: 1000.0 * factor, bytes: 100_000.0 * factor };
            Epoch { bytes: 1 << 40, objects: 1 << 33, alloc: of, inuse: of }
        };
        let stratum = Stratum { process: 0, class: 4 };
        reference.strata.get_mut(&stratum).unwrap().exact = Some((2 << 40, 2 << 33));
        reference.epochs.insert(stratum, vec![epoch(1.0), epoch(100.0)]);
        let changed = grown(&reference);
        // e⁻³·⁷ of 100 times 100 kB.
        assert!(changed.0 > one.0 + 3e7 && changed.1 > one.1 + 3e7, "{one:?} {changed:?}");
    }

    #[test]
    fn many_stacks_are_cut_to_the_first() {
        let stacks: Vec<Blocks> =
            (0..100_000).map(|index| blocks(index % 7, index % 5 + 1, index % 3, 1)).collect();
        let of = ranking(&stacks, 20);
        assert_eq!((of.growing, of.ranked.len()), (0, 20));
    }
}
