//! What was seen in windows of processes that have a budget: samples of the window that is open, and of the finished ones what each stack has in
//! each group of them.

use super::fold::Moves;
use super::{ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::duty::{Clock, Groups, Usual};
use sampler_common::estimate::Sample;

/// What a stack has in groups of windows, by rising number: bytes and objects, each divided by its chance to be seen.
pub type Sums = Vec<(u16, [f64; 2])>;

/// Samples of an open window, at most; more than a second's at the highest rate that back-pressure allows.
pub const MAX_OPEN: usize = 64 * 1024;

/// A window that has not ended.
#[derive(Debug, Default)]
struct Open {
    /// Its share of its stratum.
    share: f64,
    samples: Vec<(StackId, Sample)>,
}

/// The windows of all processes that have a budget.
#[derive(Default)]
pub struct Clustered {
    /// Whether there are windows at all: if not, every sample counts as it comes.
    pub is_on: bool,
    /// What traps usually add to the own time of programs here.
    usual: Usual,
    open: FxHashMap<ProcessId, Open>,
    groups: FxHashMap<ProcessId, Groups>,
    rows: FxHashMap<(ProcessId, StackId), Sums>,
    /// What the clocks of processes showed when they exited.
    ended: FxHashMap<ProcessId, Clock>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// What its clock showed.
    pub clock: Clock,
    /// Ticks since its last stratum ended; fewer than none, if it did not live to see that. `None`: no window was ever planned.
    pub tail: Option<f64>,
}

impl Clustered {
    /// What traps usually add here, as far as is known by now: it is the law of all that run, and of those that come.
    pub fn set_usual(&mut self, usual: Usual) {
        self.usual = usual;
        let runs = |process: &ProcessId| !self.ended.contains_key(process);
        let running = self.groups.iter_mut().filter(|(process, _)| runs(process));
        running.for_each(|(_, groups)| groups.set_usual(usual));
    }

    /// The same.
    pub fn usual(&self) -> &Usual {
        &self.usual
    }

    /// A window begins that has this share of its stratum. Samples of one that has not ended are given back.
    pub fn begin(&mut self, process: ProcessId, share: f64) -> usize {
        let before = self.open.insert(process, Open { share, samples: Vec::new() });
        before.map_or(0, |open| open.samples.len())
    }

    /// The share of its stratum that the window of a process has which is open, or was last.
    pub fn share(&self, process: ProcessId) -> f64 {
        self.open.get(&process).map_or(1.0, |open| open.share)
    }

    /// A sample in a window; false if there is no room for it, or no window.
    pub fn push(&mut self, process: ProcessId, stack: StackId, sample: Sample) -> bool {
        match self.open.get_mut(&process) {
            Some(open) if open.samples.len() < MAX_OPEN => {
                open.samples.push((stack, sample));
                true
            }
            _ => false,
        }
    }

    /// Takes the samples of the open window.
    pub fn take_open(&mut self, process: ProcessId) -> Vec<(StackId, Sample)> {
        self.open
            .get_mut(&process)
            .map(|open| std::mem::take(&mut open.samples))
            .unwrap_or_default()
    }

    /// The groups of a process, to add to.
    pub fn groups_mut(&mut self, process: ProcessId) -> &mut Groups {
        let usual = self.usual;
        self.groups.entry(process).or_insert_with(|| Groups::new(usual))
    }

    /// The groups of a process.
    pub fn groups(&self, process: ProcessId) -> Option<&Groups> {
        self.groups.get(&process)
    }

    /// Adds to what a stack has in a group.
    pub fn add(&mut self, process: ProcessId, stack: StackId, group: u16, sums: [f64; 2]) {
        let row = self.rows.entry((process, stack)).or_default();
        // Groups come in their order, but for those of processes that are folded.
        match row.iter_mut().rev().find(|(of, _)| *of == group) {
            Some((_, to)) => to.iter_mut().zip(sums).for_each(|(to, from)| *to += from),
            None => row.push((group, sums)),
        }
    }

    /// The groups of a process were paired: so are the sums of its stacks.
    pub fn pair(&mut self, process: ProcessId) {
        for ((of, _), row) in &mut self.rows {
            if *of != process {
                continue;
            }
            row.iter_mut().for_each(|(group, _)| *group /= 2);
            row.sort_unstable_by_key(|(group, _)| *group);
            row.dedup_by(|(group, from), (before, to)| {
                let same = group == before;
                if same {
                    to.iter_mut().zip(*from).for_each(|(to, from)| *to += from);
                }
                same
            });
        }
    }

    /// What stacks have in the groups of their processes.
    pub fn rows(&self) -> impl Iterator<Item = (ProcessId, StackId, &Sums)> {
        self.rows.iter().map(|((process, stack), sums)| (*process, *stack, sums))
    }

    /// A process has exited.
    pub fn end(&mut self, process: ProcessId, end: End) {
        self.open.remove(&process);
        self.ended.insert(process, end.clock);
        if let Some(tail) = end.tail {
            self.groups_mut(process).lengthen(tail);
        }
    }

    /// Adds up processes that were folded into others.
    pub fn fold(&mut self, moves: &Moves) {
        let ended: Vec<_> = self.ended.extract_if(|of, _| moves.get(*of).is_some()).collect();
        let mut places = FxHashMap::default();
        for (process, clock) in ended {
            let Some(into) = moves.get(process) else { continue };
            self.ended.entry(into).or_default().add(clock);
            let Some(groups) = self.groups.remove(&process) else { continue };
            let (group, paired) = self.groups_mut(into).fold(&groups);
            if paired {
                self.pair(into);
                let halved =
                    places.values_mut().filter(|(of, _): &&mut (ProcessId, u16)| *of == into);
                halved.for_each(|(_, group)| *group /= 2);
            }
            places.insert(process, (into, group));
        }
        let rows: Vec<_> =
            self.rows.extract_if(|(process, _), _| places.contains_key(process)).collect();
        for ((process, stack), sums) in rows {
            let Some((into, group)) = places.get(&process) else { continue };
            let sum = sums.iter().fold([0.0; 2], |sum, (_, of)| [sum[0] + of[0], sum[1] + of[1]]);
            self.add(*into, stack, *group, sum);
        }
    }

    /// What the clock of a process showed at its exit.
    pub fn ended(&self, process: ProcessId) -> Option<Clock> {
        self.ended.get(&process).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::duty::{Counted, MAX_GROUPS, Pace};
    use sampler_common::limits::CLASSES;
    use sampler_common::sampling::Rate;

    const A: ProcessId = ProcessId(3);

    #[test]
    fn samples_wait_for_the_end_of_their_window() {
        let sample = Sample::geometric(64, Rate::ALWAYS);
        let mut clustered = Clustered::default();
        assert!(!clustered.push(A, StackId::LOST, sample), "no window");
        assert_eq!(clustered.begin(A, 0.25), 0);
        assert!(clustered.push(A, StackId::LOST, sample));
        assert_eq!((clustered.share(A), clustered.take_open(A).len()), (0.25, 1));
        assert!(clustered.push(A, StackId::LOST, sample));
        assert_eq!(clustered.begin(A, 0.5), 1, "one was cut");
        for _ in 0..MAX_OPEN {
            assert!(clustered.push(A, StackId::LOST, sample));
        }
        assert!(!clustered.push(A, StackId::LOST, sample), "full");
    }

    #[test]
    fn folded_processes_keep_their_sums() {
        const INTO: ProcessId = ProcessId(9999);
        let mut clustered = Clustered::default();
        let stack = StackId::LOST;
        let none = [0; CLASSES];
        // More than there are groups, so that pairs of them become one meanwhile.
        for number in 0..400 {
            let process = ProcessId(number);
            if number % 3 > 0 {
                let groups = clustered.groups_mut(process);
                let group =
                    groups.add(100, 0.5, &none, &none, Pace::default(), Counted::default()).group;
                clustered.add(process, stack, group, [f64::from(number), 1.0]);
            }
            let tail = if number % 3 > 0 { -10.0 } else { 5.0 };
            let clock = Clock { ticks: 90, beside: 1 };
            clustered.end(process, End { clock, tail: (number % 5 > 0).then_some(tail) });
            let mut moves = Moves::default();
            moves.enter(process, INTO);
            clustered.fold(&moves);
        }
        let met = (0..400).filter(|number| number % 3 > 0);
        let groups = clustered.groups(INTO).unwrap();
        assert_eq!(groups.windows() as usize, met.clone().count());
        assert!(groups.iter().count() <= MAX_GROUPS);
        assert_eq!(clustered.ended(INTO), Some(Clock { ticks: 400 * 90, beside: 400 }));
        let rows: Vec<_> = clustered.rows().collect();
        let [(INTO, _, sums)] = rows[..] else { panic!("one row: {rows:?}") };
        let sum = |at: usize| sums.iter().map(|(_, of)| of[at]).sum::<f64>();
        assert_eq!((sum(0), sum(1)), (f64::from(met.clone().sum::<u32>()), met.count() as f64));
        let numbers: Vec<u16> = sums.iter().map(|(group, _)| *group).collect();
        let mut once = numbers.clone();
        once.sort_unstable();
        once.dedup();
        assert!(
            once.len() == numbers.len()
                && usize::from(once[once.len() - 1]) < groups.iter().count()
        );
    }

    #[test]
    fn pairs_of_groups_become_one() {
        let mut clustered = Clustered::default();
        let stack = StackId::LOST;
        for (group, bytes) in [(0, 1.0), (0, 2.0), (1, 4.0), (3, 8.0), (4, 16.0)] {
            clustered.add(A, stack, group, [bytes, 1.0]);
        }
        clustered.pair(A);
        clustered.pair(ProcessId(9));
        let (_, _, sums) = clustered.rows().next().unwrap();
        assert_eq!(*sums, [(0, [7.0, 3.0]), (1, [8.0, 1.0]), (2, [16.0, 1.0])]);
    }
}
