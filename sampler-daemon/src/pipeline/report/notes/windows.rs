//! The notes on windows in a profile.

use crate::pipeline::report::gather::Gathered;
use crate::pipeline::worker::Worker;
use sampler_common::estimate::{Cluster, MIN_WINDOWS};
use sampler_common::note::{Note, Windows};
use sampler_common::windows::{Budget, Groups};

/// The windows of the processes of a profile.
#[derive(Default)]
struct Coverage {
    windows: u32,
    /// Ticks in windows, and all ticks.
    seen: f64,
    all: u64,
    /// Processes with fewer than [`MIN_WINDOWS`] windows, and their ticks.
    few: (u32, u64),
    /// Windows that the process with the fewest lacks, and the CPU time that they need,
    /// nanoseconds; of running processes.
    missing: Option<(u32, f64)>,
    /// Processes that exited before a window was planned, and their ticks.
    unplanned: (u32, u64),
    /// Own time and traps in windows, of all processes.
    cluster: Cluster,
}

impl Coverage {
    /// Adds a process for which no window was planned.
    fn add_unplanned(&mut self, ticks: u64) {
        self.all += ticks;
        self.unplanned = (self.unplanned.0 + 1, self.unplanned.1 + ticks);
    }

    /// Adds a process; `next_ns` is the CPU time that it needs for one more window, if it runs.
    fn add(&mut self, of: Option<&Groups>, ticks: u64, next_ns: Option<f64>) {
        let windows = of.map_or(0, Groups::windows);
        self.windows += windows;
        self.seen += of.map_or(0.0, Groups::ticks);
        self.all += ticks;
        for group in of.into_iter().flat_map(Groups::iter) {
            self.cluster.own_ns += group.own_ns;
            self.cluster.traps += group.traps;
        }
        if windows < MIN_WINDOWS {
            self.few = (self.few.0 + 1, self.few.1 + ticks);
            let missing = MIN_WINDOWS - windows;
            let time = next_ns.map(|ns| (missing, f64::from(missing) * ns));
            let longer = |of: &(u32, f64)| self.missing.is_none_or(|before| before.1 < of.1);
            self.missing = time.filter(longer).or(self.missing);
        }
    }

    /// The notes. A tick is `tick_ns` nanoseconds of a program's own time.
    fn notes(&self, budget: Budget, tick_ns: f64) -> Vec<Note> {
        let own_ns = |ticks: u64| ticks as f64 * tick_ns;
        let times = [self.seen * tick_ns, own_ns(self.all)];
        let is_enough = self.windows >= MIN_WINDOWS;
        let (few, few_ticks) = self.few;
        let (unplanned, unplanned_ticks) = self.unplanned;
        let notes = [
            Some(Windows::Probed(budget, self.windows, times)),
            is_enough.then(|| Windows::MayMiss(may_be_missed(self.windows))),
            (is_enough && self.cluster.traps > 0.0)
                .then(|| Windows::ProbeEffect(self.cluster.effect())),
            (few > 0).then(|| Windows::TooFew {
                processes: few,
                own_ns: own_ns(few_ticks),
                missing: self.missing,
            }),
            (unplanned_ticks > 0).then(|| Windows::Unplanned(unplanned, own_ns(unplanned_ticks))),
        ];
        notes.into_iter().flatten().map(Note::Windows).collect()
    }
}

/// The share of its own time that code may take without falling into any window, at a confidence of
/// 95 %.
fn may_be_missed(windows: u32) -> f64 {
    1.0 - 0.05f64.powf(f64::from(windows).recip())
}

impl Worker {
    /// The notes on windows.
    pub(in crate::pipeline) fn window_notes(&self, gathered: &Gathered) -> Vec<Note> {
        let (Some(budget), Some(clock)) = (self.config.windows, self.window_clock()) else {
            return Vec::new();
        };
        let mut coverage = Coverage::default();
        for id in &gathered.processes {
            let (groups, ticks) = (self.ingest.window_samples.groups(*id), self.ticks_of(*id));
            match self.expansion(*id).is_none() {
                true => coverage.add_unplanned(ticks),
                false => coverage.add(groups, ticks, self.ingest.next_window_ns(*id)),
            }
        }
        coverage.notes(budget, clock.own_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::windows::Group;

    fn groups(windows: u32) -> Groups {
        let mut groups = Groups::default();
        for _ in 0..windows {
            groups.add(&Group { length: 100.0, ..Group::default() }, 0.01);
        }
        groups
    }

    #[test]
    fn too_few_windows_are_noted() {
        let notes = |of: &Coverage| of.notes(Budget::parse("1%").unwrap(), 1e7);
        let mut coverage = Coverage::default();
        coverage.add(Some(&groups(8)), 800, Some(1e9));
        let budget = Budget::parse("1%").unwrap();
        let probed = Windows::Probed(budget, 8, [8e7, 8e9]);
        let missed = Windows::MayMiss(may_be_missed(8));
        assert_eq!(notes(&coverage), [probed, missed].map(Note::Windows));
        coverage.add(Some(&groups(3)), 300, Some(1e9));
        coverage.add(None, 100, Some(0.25e9));
        let few = Windows::TooFew { processes: 2, own_ns: 4e9, missing: Some((5, 5e9)) };
        assert_eq!(notes(&coverage)[2], Note::Windows(few));
        let mut gone = Coverage::default();
        gone.add(None, 100, None);
        let few = Windows::TooFew { processes: 1, own_ns: 1e9, missing: None };
        assert_eq!(notes(&gone)[1], Note::Windows(few));
    }

    #[test]
    fn the_missed_share_shrinks_with_the_number_of_windows() {
        // The rule of three: about 3/n.
        assert!((may_be_missed(300) - 0.01).abs() < 1e-4, "{}", may_be_missed(300));
    }
}
