//! What was in the windows of a process: neighbours in groups, so that a row needs the same room after a day as after a minute.
//!
//! A group is a cluster of its own: the variance between groups of neighbours is that of their sum as well, with fewer degrees of freedom
//! (M. H. Hansen, W. N. Hurwitz, W. G. Madow, "Sample Survey Methods and Theory" (1953), volume I, chapter 10.16: random groups).

mod group;
mod telling;

pub use group::Group;

use super::likeness;
use super::pace::Counts;
use super::taken::{Progress, Taken};
use super::{Bend, Drag, Flow, Marked, Marks, Pace, Tally, Usual};
use crate::estimate::Clusters;
use crate::limits::CLASSES;
use crate::wire::WORDS;

/// Tallies of a process: what it reads and writes, and behind that words of its memory.
pub const TALLIES: usize = 1 + WORDS;
/// The one of what it reads and writes.
pub const TRAFFIC: usize = 0;

/// Groups at most; then pairs of neighbours become one, and there are half as many.
pub const MAX_GROUPS: usize = 128;

/// Clusters, and by what bytes and objects of each group were multiplied.
type Made = (Clusters, Vec<[f64; 2]>);

/// Words that leave no more open than so many times what the best does are as good: with a dozen windows the variance of either is known to no better than a factor of two.
const AS_GOOD: f64 = 2.0;

/// What was counted in a window beside allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Calls of a marker, if there is one.
    pub calls: Option<Marked>,
    /// What each tally has counted, if that is known.
    pub tallied: [Option<f64>; TALLIES],
    /// The one at whose [steps](super::Steps) the window began and ended.
    pub stepped: Option<usize>,
}

/// A window that was added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Added {
    /// Number of its group.
    pub group: u16,
    /// Whether groups were paired before: what was in group 2n or 2n + 1 is in n now.
    pub paired: bool,
    /// Its share of its stratum, without what traps added to its time as far as is known by now.
    pub share: f64,
}

/// The groups of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// What traps usually add here.
    usual: Usual,
    groups: Vec<Group>,
    /// Windows in a full group: a power of two.
    full: u32,
    /// Ticks of all windows.
    ticks: f64,
    /// Relative standard error of what a marker has told, beside chance, if it counts.
    marks_model: Option<f64>,
    /// What is known of its tallies.
    tallies: [Tally; TALLIES],
}

impl Groups {
    /// None yet, on a machine where traps usually add so much.
    pub fn new(usual: Usual) -> Groups {
        Groups { usual, ..Groups::default() }
    }

    /// It has become better known what traps usually add. Windows that were corrected by what was known before are corrected by the difference.
    pub fn set_usual(&mut self, usual: Usual) {
        self.usual = usual;
    }

    /// How fast the program went in a window in which so much was counted.
    pub fn pace(&self, counts: &Counts) -> Pace {
        Pace::of_window(counts, likeness::expected_ns(&self.groups, counts), &self.usual)
    }

    /// Adds a finished window: exact totals by size class, its share of its stratum, how long that was, how fast the program went, and what else was
    /// counted.
    pub fn add(
        &mut self,
        length: u64,
        share: f64,
        bytes: &[u64; CLASSES],
        objects: &[u64; CLASSES],
        pace: Pace,
        counted: Counted,
    ) -> Added {
        let (drag, by_clock) = (self.drag().ns, share);
        let share = pace.share(by_clock, drag);
        let marks = counted.calls.map(|of| Marks::of_window(&of, share, &pace, drag));
        let length = length as f64;
        let flow = |of: f64| Flow::of_window(of, (length, share, by_clock), &pace, drag);
        let mut flows = counted.tallied.map(|of| of.map(flow).unwrap_or_default());
        if let Some(at) = counted.stepped {
            flows[at] = flows[at].stepped();
        }
        let scaled = |from: &[u64; CLASSES]| from.map(|count| count as f64 / share);
        let (bytes, objects) = (scaled(bytes), scaled(objects));
        let bend =
            [bytes, objects].map(|of| Bend::of_window(of.iter().sum::<f64>(), share, &pace, drag));
        let marks = marks.unwrap_or_default();
        let strata = length;
        let window = Group { windows: 1, length, strata, bytes, objects, pace, bend, marks, flows };
        self.ticks += length * share;
        let (group, paired) = self.add_group(&window);
        Added { group, paired, share }
    }

    /// The program's own time for each allocation, without traps, nanoseconds; `None` where it was seen to do none.
    pub fn own_ns(&self) -> Option<f64> {
        let all = self.paces();
        let each_ns = all.own_ns(self.drag().ns) / all.allocations.iter().sum::<f64>();
        each_ns.is_finite().then_some(each_ns)
    }

    /// The same in a tick, where traps add so much.
    pub(super) fn tick_ns(&self, ns: [f64; 2]) -> f64 {
        if self.ticks > 0.0 { self.paces().own_ns(ns) / self.ticks } else { 0.0 }
    }

    /// How fast it went in all windows.
    fn paces(&self) -> Pace {
        let mut all = Pace::default();
        self.iter().for_each(|group| all.add(&group.pace));
        all
    }

    /// What counts its work, [what it reads and writes](TRAFFIC) first.
    pub fn tallies(&self) -> &[Tally; TALLIES] {
        &self.tallies
    }

    /// The same, to add to.
    pub fn tallies_mut(&mut self) -> &mut [Tally; TALLIES] {
        &mut self.tallies
    }

    /// As [`Groups::add`], of some windows that stay together.
    fn add_group(&mut self, group: &Group) -> (u16, bool) {
        self.full = self.full.max(1);
        let is_full =
            |groups: &Groups| groups.groups.last().is_none_or(|last| last.windows >= groups.full);
        let paired = is_full(self) && self.groups.len() == MAX_GROUPS;
        if paired {
            self.pair();
        }
        if is_full(self) {
            self.groups.push(Group::default());
        }
        let number = self.groups.len() - 1;
        self.groups[number].add(group);
        (number as u16, paired)
    }

    /// Adds those of another process as one group of their own, or a part of the last: its number here, and whether groups were paired before.
    pub fn fold(&mut self, other: &Groups) -> (u16, bool) {
        let mut sum = Group::default();
        other.groups.iter().for_each(|group| sum.add(group));
        // What traps add to one process they need not add to another.
        (sum.marks, sum.flows) = (Marks::default(), [Flow::default(); TALLIES]);
        self.ticks += other.ticks;
        self.add_group(&sum)
    }

    /// So many ticks belong to the last stratum in which there was no window for them; fewer than none, where it ended before its time.
    pub fn lengthen(&mut self, ticks: f64) {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        if let Some(last) = self.groups.last_mut() {
            last.length += ticks;
        }
    }

    fn pair(&mut self) {
        let pairs = self.groups.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair[1..].iter().for_each(|other| sum.add(other));
            sum
        });
        self.groups = pairs.collect();
        self.full *= 2;
    }

    /// The groups in their order, as a slice.
    pub(super) fn all(&self) -> &[Group] {
        &self.groups
    }

    /// The groups in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.all().iter()
    }

    /// Windows in all of them.
    pub fn windows(&self) -> u32 {
        self.groups.iter().map(|group| group.windows).sum()
    }

    /// Ticks of all their strata.
    pub fn length(&self) -> f64 {
        self.groups.iter().map(|group| group.length).sum()
    }

    /// Ticks of the windows themselves.
    pub fn ticks(&self) -> f64 {
        self.ticks
    }

    /// The groups, taken to all of the process's progress and corrected for what traps add to its own time; and by what bytes and objects of each were multiplied. By whichever leaves least open: the
    /// clock, traffic, or words of its memory.
    pub fn clusters(&self, all: &Progress) -> (Clusters, Vec<[f64; 2]>) {
        let drag = self.drag();
        let words = self.words(all, &drag);
        // Which of several that are about as good looks best is chance, and so is by how much: they count together.
        let least = words.first().map_or(f64::INFINITY, |(_, open)| *open);
        let good = words.into_iter().filter(|(_, open)| *open <= AS_GOOD * least);
        let good: Vec<usize> = good.map(|(at, _)| at).collect();
        let traffic: Vec<usize> = self.standing().filter(|at| *at == TRAFFIC).collect();
        // Where windows begin and end at counts of a word what it tells is not by its luck better.
        let are_stepped = good.first().is_some_and(|at| {
            let sum =
                |of: fn(&Flow) -> u32| self.iter().map(|group| of(&group.flows[*at])).sum::<u32>();
            2 * sum(|of| of.loose) < sum(|of| of.windows)
        });
        let least = if are_stepped { least / AS_GOOD } else { f64::INFINITY };
        let by_traffic = self.by(&traffic, all, &drag).filter(|of| open(of) < least);
        let by_clock = Taken::by_clock(all).made(self, &drag);
        std::iter::once(by_clock)
            .chain(by_traffic)
            .chain(self.by(&good, all, &drag))
            .min_by(|a, b| open(a).total_cmp(&open(b)))
            .unwrap_or_default()
    }

    fn by(&self, tallies: &[usize], all: &Progress, drag: &Drag) -> Option<Made> {
        Some(Taken::by_tallies(self, tallies, all)?.made(self, drag))
    }

    /// Words that may stand for progress, and what each leaves open: the best first.
    fn words(&self, all: &Progress, drag: &Drag) -> Vec<(usize, f64)> {
        let words = self.standing().filter(|at| *at != TRAFFIC);
        let each = words.filter_map(|at| Some((at, open(&self.by(&[at], all, drag)?))));
        let mut each: Vec<(usize, f64)> = each.collect();
        each.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        each
    }
}

/// Relative variance of an estimate.
fn open((of, _): &Made) -> f64 {
    of.of_windows() + of.error().powi(2)
}

#[cfg(test)]
mod tests;
