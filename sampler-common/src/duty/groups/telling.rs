//! What markers, and tallies, tell of the windows of a process: what traps add to its time, and how far it has come.

use super::{Group, Groups, TALLIES, TRAFFIC};
use crate::duty::flow::Share;
use crate::duty::marks::Teller;
use crate::duty::steps::LEAST;
use crate::duty::{Drag, Flow, LEAST_WINDOWS, Marked, Marks, Pace, Progress, Tally, Verdict};

/// Groups by which it is judged what traps add, at most.
const MOST_JUDGED: usize = 32;

/// So many neighbours each as one.
fn summed<T: Default>(of: &[T], together: usize, add: impl Fn(&mut T, &T)) -> Vec<T> {
    let sum = |chunk: &[T]| {
        let mut sum = T::default();
        chunk.iter().for_each(|one| add(&mut sum, one));
        sum
    };
    of.chunks(together).map(sum).collect()
}

impl Groups {
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

    /// Whether allocations, and their bytes, follow any of these.
    pub fn follows_tally(&self) -> bool {
        let follows = |at: &usize| self.tallies[*at].verdict() == Verdict::Follows;
        self.standing().any(|at| follows(&at))
    }

    /// How often the fastest word counts in a tick of those that may tell something; `None` without any.
    pub fn counts_in_tick(&self) -> Option<f64> {
        let may_tell = |at: &usize| {
            let tally = &self.tallies[*at];
            tally.may_tell() && (tally.is_open() || self.is_work(*at))
        };
        let rates = (TRAFFIC + 1..TALLIES).filter(may_tell).filter_map(|at| self.often(at));
        rates.max_by(f64::total_cmp)
    }

    /// The word at whose [steps](crate::duty::Steps) windows may begin and end: the one that leaves least open, or before any does the fastest that may.
    pub fn steps_by(&self) -> Option<usize> {
        let best = self.words(&Progress::of_strata(), &self.drag()).first().map(|(at, _)| *at);
        let may_tell = |at: &usize| self.tallies[*at].may_tell() && self.tallies[*at].is_open();
        let fastest = || {
            let often = |at: &usize| self.often(*at).unwrap_or(0.0);
            let words = (TRAFFIC + 1..TALLIES).filter(may_tell);
            words.max_by(|a, b| often(a).total_cmp(&often(b)))
        };
        best.or_else(fastest)
    }

    /// Whether a window that is so many ticks of the clock long would meet steps of that word, by how often it counts.
    pub fn meets(&self, word: usize, ticks: f64) -> bool {
        let own = ticks / self.paces().factor(self.drag().ns);
        self.often(word).is_some_and(|often| own * often >= LEAST)
    }

    /// How often it counts in a tick, what it counts at once as one.
    fn often(&self, at: usize) -> Option<f64> {
        Some(self.tallies[at].rate()? / self.tallies[at].step())
    }

    /// Whether what any of these shows matters.
    pub fn has_tally(&self) -> bool {
        self.standing().next().is_some()
    }

    /// Those that may stand for progress in place of the clock. Of a word allocations need not follow closely: what that leaves open is in what windows differ in.
    pub(super) fn standing(&self) -> impl Iterator<Item = usize> {
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

    /// So many neighbours count together where it is judged what traps add: that is done many times in a window, and by more than some groups it is not known better.
    fn together(&self) -> usize {
        self.groups.len().div_ceil(MOST_JUDGED).max(1)
    }

    /// The groups of that.
    pub(in crate::duty) fn judged(&self) -> Vec<Group> {
        summed(&self.groups, self.together(), Group::add)
    }

    /// What a trap adds to the program's own time.
    pub fn drag(&self) -> Drag {
        let together = self.together();
        let paces: Vec<Pace> = self.iter().map(|group| group.pace).collect();
        let mut tellers: Vec<Teller> = self.telling().collect();
        if let Some(model) = self.marks_model {
            tellers.push((self.marks().copied().collect(), model));
        }
        for (marks, _) in &mut tellers {
            *marks = summed(marks, together, Marks::add);
        }
        Drag::learned(&self.usual, &summed(&paces, together, Pace::add), &tellers)
    }

    /// What a marker has told in each, if that counts.
    pub(in crate::duty) fn marks(&self) -> impl Iterator<Item = &Marks> {
        self.groups.iter().filter(|_| self.marks_model.is_some()).map(|group| &group.marks)
    }
}
