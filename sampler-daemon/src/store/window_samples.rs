//! Samples in windows of processes ([`sampler_common::windows`]).

use super::{Moves, ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Sample;
use sampler_common::windows::{Groups, MAX_GROUPS};
use std::collections::BTreeMap;

/// Bytes and objects of a row by group number, each divided by the probability that it is seen.
pub type GroupTotals = BTreeMap<u16, [f64; 2]>;

/// Maximum number of samples of an open window: more than a second's samples at the highest rate
/// that back-pressure allows.
pub const MAX_OPEN: usize = 64 * 1024;

/// A window that has not ended.
#[derive(Debug, Default)]
struct Open {
    /// Probability that an allocation of the stratum is in the window.
    kappa: f64,
    samples: Vec<(StackId, Sample)>,
}

/// The windows of all processes.
#[derive(Default)]
pub struct WindowSamples {
    /// Whether allocations are recorded in windows only. If not, every sample counts as it comes.
    pub is_on: bool,
    open: FxHashMap<ProcessId, Open>,
    groups: FxHashMap<ProcessId, Groups>,
    rows: FxHashMap<(ProcessId, StackId), GroupTotals>,
    /// Ticks of exited processes.
    ended: FxHashMap<ProcessId, u64>,
}

impl WindowSamples {
    /// Begins a window. Returns the number of samples of a window that has not ended: these samples
    /// are dropped.
    pub fn begin(&mut self, process: ProcessId, kappa: f64) -> usize {
        let before = self.open.insert(process, Open { kappa, samples: Vec::new() });
        before.map_or(0, |open| open.samples.len())
    }

    /// Probability κ of the open window, or of the last one.
    pub fn kappa(&self, process: ProcessId) -> f64 {
        self.open.get(&process).map_or(1.0, |open| open.kappa)
    }

    /// Adds a sample to the open window. Returns false without room or without a window.
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
        let open = self.open.get_mut(&process);
        open.map(|open| std::mem::take(&mut open.samples)).unwrap_or_default()
    }

    /// The groups of a process, mutable.
    pub fn groups_mut(&mut self, process: ProcessId) -> &mut Groups {
        self.groups.entry(process).or_default()
    }

    /// The groups of a process.
    pub fn groups(&self, process: ProcessId) -> Option<&Groups> {
        self.groups.get(&process)
    }

    /// Adds to the sums of a stack in a group.
    pub fn add(&mut self, process: ProcessId, stack: StackId, group: u16, sums: [f64; 2]) {
        let row = self.rows.entry((process, stack)).or_default();
        let to = row.entry(group).or_default();
        to.iter_mut().zip(sums).for_each(|(to, from)| *to += from);
    }

    /// The sums of stacks by group.
    pub fn rows(&self) -> impl Iterator<Item = (ProcessId, StackId, &GroupTotals)> {
        self.rows.iter().map(|((process, stack), sums)| (*process, *stack, sums))
    }

    /// Notes that a process has exited. `ticks` are its ticks, `tail` those since its last stratum
    /// ended (negative: the last stratum was cut short).
    pub fn end(&mut self, process: ProcessId, ticks: u64, tail: f64) {
        self.open.remove(&process);
        self.ended.insert(process, ticks);
        self.groups_mut(process).lengthen(tail);
    }

    /// Ticks of an exited process.
    pub fn ended(&self, process: ProcessId) -> Option<u64> {
        self.ended.get(&process).copied()
    }

    /// Stacks of all rows and samples; a stack may be repeated.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let open = self
            .open
            .iter()
            .flat_map(|(process, open)| open.samples.iter().map(|(stack, _)| (*process, *stack)));
        self.rows.keys().copied().chain(open)
    }

    /// Adds folded processes to their folded records, and discarded stacks to
    /// [`StackId::TABLE_FULL`].
    pub fn fold(&mut self, moves: &Moves) {
        let ended: Vec<_> = self.ended.extract_if(|of, _| moves.get(*of).is_some()).collect();
        let mut shifts = FxHashMap::default();
        for (process, ticks) in ended {
            let Some(into) = moves.get(process) else { continue };
            *self.ended.entry(into).or_default() += ticks;
            if let Some(groups) = self.groups.remove(&process) {
                shifts.insert(process, (into, self.groups_mut(into).fold(&groups)));
            }
        }
        let moved = |process: ProcessId, stack: StackId| {
            let shift = shifts.get(&process).map(|(_, shift)| *shift);
            // A folded process without groups has no sums to move.
            let is_there = shift.is_some() || moves.get(process).is_none();
            moves.stack(process, stack).filter(|_| is_there).map(|to| (to, shift.unwrap_or(0)))
        };
        let rows = self.rows.extract_if(|(process, stack), _| moved(*process, *stack).is_some());
        for ((process, stack), sums) in rows.collect::<Vec<_>>() {
            let Some(((process, stack), shift)) = moved(process, stack) else { continue };
            for (group, of) in sums {
                self.add(process, stack, (group + shift) % MAX_GROUPS as u16, of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::sampling::Rate;
    use sampler_common::windows::Group;

    const A: ProcessId = ProcessId(3);

    #[test]
    fn samples_wait_for_the_end_of_their_window() {
        let sample = Sample::geometric(64, Rate::ALWAYS);
        let mut windows = WindowSamples::default();
        assert!(!windows.push(A, StackId::LOST, sample), "no window");
        assert_eq!(windows.begin(A, 0.25), 0);
        assert!(windows.push(A, StackId::LOST, sample));
        assert_eq!((windows.kappa(A), windows.take_open(A).len()), (0.25, 1));
        assert!(windows.push(A, StackId::LOST, sample));
        assert_eq!(windows.begin(A, 0.5), 1, "a window was cut");
        for _ in 0..MAX_OPEN {
            assert!(windows.push(A, StackId::LOST, sample));
        }
        assert!(!windows.push(A, StackId::LOST, sample), "full");
    }

    #[test]
    fn folded_processes_keep_their_sums() {
        const INTO: ProcessId = ProcessId(9999);
        let mut windows = WindowSamples::default();
        let stack = StackId::LOST;
        // More processes than groups.
        for number in 0..400 {
            let process = ProcessId(number);
            let has_window = number % 3 > 0;
            if has_window {
                let window = Group { length: 100.0, ..Group::default() };
                let group = windows.groups_mut(process).add(&window, 0.5);
                windows.add(process, stack, group, [f64::from(number), 1.0]);
            }
            windows.end(process, 90, if has_window { -10.0 } else { 5.0 });
            let mut moves = Moves::default();
            moves.enter(process, INTO);
            windows.fold(&moves);
        }
        let with_window = (0..400).filter(|number| number % 3 > 0);
        let groups = windows.groups(INTO).unwrap();
        assert_eq!(groups.windows() as usize, with_window.clone().count());
        assert!(groups.iter().len() <= MAX_GROUPS);
        assert_eq!(windows.ended(INTO), Some(400 * 90));
        let rows: Vec<_> = windows.rows().collect();
        let [(INTO, _, sums)] = rows[..] else { panic!("one row: {rows:?}") };
        let sum = |at: usize| sums.values().map(|of| of[at]).sum::<f64>();
        let expected = f64::from(with_window.clone().sum::<u32>());
        assert_eq!((sum(0), sum(1)), (expected, with_window.count() as f64));
        assert_eq!((sums.len(), groups.iter().len()), (MAX_GROUPS, MAX_GROUPS));
    }
}
