//! What was in the windows of a process: neighbours in groups, so that a row needs the same room after a day as after a minute.
//!
//! A group is a cluster of its own: the variance between groups of neighbours is that of their sum as well, with fewer degrees of freedom
//! (M. H. Hansen, W. N. Hurwitz, W. G. Madow, "Sample Survey Methods and Theory" (1953), volume I, chapter 10.16: random groups).

use super::flow::Share;
use super::likeness;
use super::marks::Teller;
use super::pace::Counts;
use super::taken::{Progress, Taken};
use super::{Bend, Drag, Flow, LEAST_WINDOWS, Marked, Marks, Pace, Tally, Usual, Verdict};
use crate::estimate::Clusters;
use crate::limits::CLASSES;
use crate::wire::WORDS;

/// Tallies of a process: what it reads and writes, and behind that words of its memory.
pub const TALLIES: usize = 1 + WORDS;
/// The one of what it reads and writes.
pub const TRAFFIC: usize = 0;

/// Groups at most; then pairs of neighbours become one, and there are half as many.
pub const MAX_GROUPS: usize = 32;

/// Neighbouring windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Windows in it.
    pub windows: u32,
    /// Ticks of their strata together.
    pub length: f64,
    /// Bytes allocated in the windows by size class, each divided by its window's share of the program's own progress.
    pub bytes: [f64; CLASSES],
    /// The same of objects.
    pub objects: [f64; CLASSES],
    /// How fast the program went in the windows.
    pub pace: Pace,
    /// What bytes and objects are to be multiplied by, as traps are found to slow the program.
    pub bend: [Bend; 2],
    /// What a marker has told in them.
    pub marks: Marks,
    /// What the process's tallies have counted in them.
    pub flows: [Flow; TALLIES],
}

/// What was counted in a window beside allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Calls of a marker, if there is one.
    pub calls: Option<Marked>,
    /// What each tally has counted, if that is known.
    pub tallied: [Option<f64>; TALLIES],
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

impl Group {
    fn add(&mut self, other: &Group) {
        self.windows += other.windows;
        self.pace.add(&other.pace);
        self.marks.add(&other.marks);
        self.flows.iter_mut().zip(&other.flows).for_each(|(to, from)| to.add(from));
        self.bend.iter_mut().zip(&other.bend).for_each(|(to, from)| to.add(from));
        self.length += other.length;
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from);
        self.objects.iter_mut().zip(other.objects).for_each(|(to, from)| *to += from);
    }
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
        let flows = counted.tallied.map(|of| of.map(flow).unwrap_or_default());
        let scaled = |from: &[u64; CLASSES]| from.map(|count| count as f64 / share);
        let (bytes, objects) = (scaled(bytes), scaled(objects));
        let bend =
            [bytes, objects].map(|of| Bend::of_window(of.iter().sum::<f64>(), share, &pace, drag));
        let marks = marks.unwrap_or_default();
        let window = Group { windows: 1, length, bytes, objects, pace, bend, marks, flows };
        self.ticks += length * share;
        let (group, paired) = self.add_group(&window);
        Added { group, paired, share }
    }

    /// Whether a marker is worth what it costs: what traps add is what these windows leave open most, and no tally tells it. Once it is so it should
    /// be left so.
    pub fn want_marks(&self) -> bool {
        let is_open = self.tallies.iter().any(Tally::is_open);
        if is_open || self.windows() < LEAST_WINDOWS {
            return false;
        }
        let (clusters, _) = self.clusters(&Progress::of_strata());
        Marked::is_worth(clusters.errors[1], clusters.of_windows())
    }

    /// The program's own time for each allocation, without traps, nanoseconds; `None` where it was seen to do none.
    pub fn own_ns(&self) -> Option<f64> {
        let mut all = Pace::default();
        self.iter().for_each(|group| all.add(&group.pace));
        let clock_ns: f64 = all.clock_ns.iter().sum();
        let each_ns = clock_ns / all.factor(self.drag().ns) / all.allocations.iter().sum::<f64>();
        each_ns.is_finite().then_some(each_ns)
    }

    /// What counts its work, [what it reads and writes](TRAFFIC) first.
    pub fn tallies(&self) -> &[Tally; TALLIES] {
        &self.tallies
    }

    /// The same, to add to.
    pub fn tallies_mut(&mut self) -> &mut [Tally; TALLIES] {
        &mut self.tallies
    }

    /// Whether allocations, and their bytes, follow any of these.
    pub fn follows_tally(&self) -> bool {
        let follows = |at: &usize| self.tallies[*at].verdict() == Verdict::Follows;
        self.standing().any(|at| follows(&at))
    }

    /// What the fastest word counts in a tick of those that may tell something; `None` without any.
    pub fn counts_in_tick(&self) -> Option<f64> {
        let may_tell = |at: &usize| {
            let tally = &self.tallies[*at];
            tally.may_tell() && (tally.is_open() || self.is_work(*at))
        };
        let rates =
            (TRAFFIC + 1..TALLIES).filter(may_tell).filter_map(|at| self.tallies[at].rate());
        rates.max_by(f64::total_cmp)
    }

    /// Whether what any of these shows matters.
    pub fn has_tally(&self) -> bool {
        self.standing().next().is_some()
    }

    /// Those that may stand for progress in place of the clock. Of a word allocations need not follow closely: what that leaves open is in what windows differ in.
    fn standing(&self) -> impl Iterator<Item = usize> {
        (0..TALLIES).filter(|at| {
            let tally = &self.tallies[*at];
            let is_one = match *at {
                TRAFFIC => tally.verdict() == Verdict::Follows,
                _ => tally.telling().is_some(),
            };
            is_one && self.is_work(*at)
        })
    }

    /// What tallies have counted in windows and in all time tells what traps add, as calls of a marker do.
    fn telling(&self) -> impl Iterator<Item = Teller> {
        (0..TALLIES).filter_map(|at| {
            let model = self.tallies[at].telling().filter(|_| self.is_work(at))?;
            let flows = self.iter().map(|group| &group.flows[at]);
            let marks = flows.zip(self.tallied(at)?).map(|(flow, all)| flow.marks(all));
            Some((marks.collect(), model))
        })
    }

    /// Whether it is work that a tally counts, and nothing that traps feed.
    fn is_work(&self, at: usize) -> bool {
        at == TRAFFIC || self.share(at).is_some_and(|share| share.is_of_work())
    }

    /// How much of what a tally counts is counted in windows.
    fn share(&self, at: usize) -> Option<Share> {
        let flows = self.iter().map(|group| &group.flows[at]);
        Share::of(flows.zip(self.tallied(at)?))
    }

    /// What is known of those that have been looked at: how bytes and allocations follow them, and how much of what they count is counted in windows.
    pub fn described(&self) -> impl Iterator<Item = String> {
        (0..TALLIES).filter(|at| self.tallies[*at].rate().is_some()).map(|at| {
            let share = self.share(at);
            let share = share.map_or_else(|| "?".to_owned(), |of| of.to_string());
            format!("{at}: {} of clock {share}", self.tallies[at])
        })
    }

    /// What a tally has counted in all of the strata of each group in whose windows it is known.
    fn tallied(&self, at: usize) -> Option<impl Iterator<Item = f64>> {
        let rate = self.tallies[at].rate()?;
        Some(self.iter().map(move |group| rate * group.flows[at].length))
    }

    /// What is known of the marker, with the relative standard error of what it tells beside chance. That counts from when it is known to be one; where it is none it is
    /// forgotten.
    pub fn judge_marks(&mut self, verdict: Verdict, model: f64) {
        self.marks_model = (verdict == Verdict::Follows).then_some(model);
        if verdict == Verdict::Differs {
            self.groups.iter_mut().for_each(|group| group.marks = Marks::default());
        }
    }

    /// It is another program from now on: nobody knows what follows its allocations.
    pub fn forget_marks(&mut self) {
        self.judge_marks(Verdict::Differs, f64::INFINITY);
        self.tallies[TRAFFIC].restart();
        // Its memory is another's.
        self.tallies[TRAFFIC + 1..].fill(Tally::default());
        for group in &mut self.groups {
            group.flows[TRAFFIC + 1..].fill(Flow::default());
        }
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

    /// The groups in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
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

    /// The groups, taken to all of the process's progress and corrected for what traps add to its own time; and by what bytes and objects of each were multiplied.
    pub fn clusters(&self, all: &Progress) -> (Clusters, Vec<[f64; 2]>) {
        let drag = self.drag();
        let by_clock = Taken::by_clock(all).made(self, &drag);
        let by_tally = self.standing().filter_map(|at| {
            let counted = self.tallies[at].all(all.looks[at], all.clock)?;
            Some(Taken::by_tally(self, at, counted, all)?.made(self, &drag))
        });
        // Whichever leaves least open.
        let open = |(of, _): &(Clusters, Vec<[f64; 2]>)| of.of_windows() + of.error().powi(2);
        std::iter::once(by_clock)
            .chain(by_tally)
            .min_by(|a, b| open(a).total_cmp(&open(b)))
            .unwrap_or_default()
    }

    /// What a trap adds to the program's own time.
    pub fn drag(&self) -> Drag {
        let paces: Vec<Pace> = self.iter().map(|group| group.pace).collect();
        let mut tellers: Vec<Teller> = self.telling().collect();
        if let Some(model) = self.marks_model {
            tellers.push((self.marks().copied().collect(), model));
        }
        Drag::learned(&self.usual, &paces, &tellers)
    }

    /// What a marker has told in each, if that counts.
    pub(super) fn marks(&self) -> impl Iterator<Item = &Marks> {
        self.groups.iter().filter(|_| self.marks_model.is_some()).map(|group| &group.marks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Look;
    use super::*;

    #[test]
    fn processes_fold_with_their_ends() {
        let window = |groups: &mut Groups, bytes| {
            groups.add(
                100,
                0.5,
                &[bytes; CLASSES],
                &[1; CLASSES],
                Pace::default(),
                Counted::default(),
            )
        };
        let (mut sum, mut gone) = (Groups::default(), Groups::default());
        gone.lengthen(7.0);
        assert_eq!((gone.length(), gone.windows(), gone.ticks()), (7.0, 0, 0.0));
        // Nothing was seen of it: the next one's windows are in the same group.
        assert_eq!(sum.fold(&gone), (0, false));
        assert_eq!(window(&mut sum, 3), Added { group: 0, paired: false, share: 0.5 });
        let mut other = Groups::default();
        window(&mut other, 4);
        window(&mut other, 5);
        other.lengthen(-30.0);
        assert_eq!(sum.fold(&other), (1, false));
        assert_eq!((sum.length(), sum.windows(), sum.ticks()), (277.0, 3, 150.0));
        let bytes: Vec<f64> = sum.iter().map(|group| group.bytes[0]).collect();
        assert_eq!(bytes, [6.0, 18.0]);
    }

    #[test]
    fn windows_before_a_tally_was_known_stand_for_what_they_were() {
        const WORD: usize = TRAFFIC + 1;
        // A loop that counts what it allocates; in its first windows, which stood for little, nobody looked. Traps slow it down in every other one.
        let mut groups = Groups::new(Usual::default());
        groups.tallies_mut()[WORD].look(Look { counted: 0, ticks: 100 });
        for at in 0..50u64 {
            let seen = 1000 + 500 * (at % 2);
            let mut objects = [0; CLASSES];
            objects[1] = seen;
            let passed = groups.tallies_mut()[WORD].window([0, seen], [seen as f64; 2]);
            let mut tallied = [None; TALLIES];
            tallied[WORD] = passed.filter(|_| at >= 10);
            let pace = Pace::exact(250_000.0, seen as f64, None, 0.0, &Usual::default());
            let length = if at < 10 { 10 } else { 1000 };
            let share = 10.0 / length as f64;
            groups.add(length, share, &objects, &objects, pace, Counted { calls: None, tallied });
        }
        let last = Look { counted: 8_000_000, ticks: 40_100 };
        groups.tallies_mut()[WORD].look(last);
        let mut looks = [None; TALLIES];
        looks[WORD] = Some(last);
        let all = Progress { factor: 1.0, tail: 0.0, clock: 40_100.0, looks };
        let (clusters, _) = groups.clusters(&all);
        let total: f64 = clusters.groups.iter().map(|group| group.total[1]).sum();
        assert!(clusters.correction.is_some_and(|of| of.tallied > 0 && of.tally == 1));
        assert!((total / 8_020_000.0 - 1.0).abs() < 0.03, "{total}");
    }

    #[test]
    fn what_becomes_known_later_holds_for_windows_before() {
        let [before, after] = [25.0, 90.0].map(|median_ns| Usual {
            median_ns,
            spread: 0.7,
            power: 1.5,
            floor_ns: 0.0,
        });
        let pace = Pace::exact(300_000.0, 1000.0, None, 0.0, &after);
        let total = |first: Usual| {
            let mut groups = Groups::new(first);
            (0..40).for_each(|_| {
                groups.add(100, 0.01, &[1000; CLASSES], &[1; CLASSES], pace, Counted::default());
            });
            groups.set_usual(after);
            let (clusters, _) = groups.clusters(&Progress::of_strata());
            clusters.groups.iter().map(|group| group.total[0]).sum::<f64>()
        };
        let (late, always) = (total(before), total(after));
        // To first order: windows were corrected by what differed a little from one to the next.
        assert!((late / always - 1.0).abs() < 1e-3, "{late} {always}");
        let uncorrected = 40.0 * 1000.0 * CLASSES as f64 / 0.01;
        assert!(always > 1.2 * uncorrected, "{always} {uncorrected}");
    }

    #[test]
    fn however_many_windows_the_sums_stay() {
        let mut groups = Groups::default();
        let mut row: Vec<f64> = Vec::new();
        for number in 0..1000u64 {
            let mut bytes = [0; CLASSES];
            bytes[3] = number;
            let Added { group, paired, .. } = groups.add(
                100 + number,
                0.5,
                &bytes,
                &[1; CLASSES],
                Pace::default(),
                Counted::default(),
            );
            if paired {
                row = row.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
            row.resize(row.len().max(usize::from(group) + 1), 0.0);
            row[usize::from(group)] += number as f64 * 2.0;
        }
        assert!(groups.iter().count() <= MAX_GROUPS && groups.iter().count() > MAX_GROUPS / 2);
        assert_eq!(groups.windows(), 1000);
        assert_eq!(groups.length(), 100.0 * 1000.0 + 499_500.0);
        let sums: Vec<f64> = groups.iter().map(|group| group.bytes[3]).collect();
        assert_eq!(sums, row);
        assert_eq!(groups.ticks(), groups.length() / 2.0);
        // All but the last have as many.
        let first = groups.iter().next().unwrap().windows;
        assert!(groups.iter().take(row.len() - 1).all(|group| group.windows == first));
    }
}
